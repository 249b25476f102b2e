//! Compressed files, and files of other formats. The unit tests of `input::content` have all of
//! those.

use testkit::sandbox::lines;

use super::{CSV, Case, all, joined, md5s, read, refused};
use crate::support::{gzip, zst};

pub fn cases() -> Vec<Case> {
    [members(), damaged(), foreign()]
        .into_iter()
        .flatten()
        .collect()
}

fn members() -> Vec<Case> {
    let md5s = md5s();
    let (first, second) = md5s.split_at(50);
    let text = lines(&md5s);
    // As parallel compressors write it.
    let skippable = [0x50, 0x2a, 0x4d, 0x18, 4, 0, 0, 0, 1, 2, 3, 4];
    let [first_gz, second_gz] = [first, second].map(|ids| gzip(lines(ids).as_bytes()));
    let [first_zst, second_zst] = [first, second].map(|ids| zst(lines(ids).as_bytes()));
    vec![
        read(
            "gzip of CR",
            gzip(joined(&md5s, "\r").as_bytes()),
            "",
            all(100),
        ),
        read("gzip members", [first_gz, second_gz].concat(), "", all(100)),
        read(
            "zstd frames",
            [&skippable[..], &first_zst, &second_zst].concat(),
            "",
            all(100),
        ),
        refused(
            "gzip and text",
            [gzip(text.as_bytes()), text.into_bytes()].concat(),
            "",
            "cut short or corrupt",
        ),
    ]
}

fn damaged() -> Vec<Case> {
    let text = lines(&md5s()).repeat(200);
    let (gz, zst) = (gzip(text.as_bytes()), zst(text.as_bytes()));
    let flipped = |bytes: &[u8]| {
        let mut bytes = bytes.to_vec();
        let middle = bytes.len() / 2;
        bytes[middle..middle + 64]
            .iter_mut()
            .for_each(|byte| *byte ^= 0xff);
        bytes
    };
    // A frame header that asks for a window of 2 GiB.
    let bomb = [&[0x28, 0xb5, 0x2f, 0xfd, 0x00, 21 << 3][..], &[0; 64]].concat();
    vec![
        refused(
            "gzip, cut",
            &gz[..gz.len() / 2],
            "",
            "odd: gzip data is cut short or corrupt after ",
        ),
        refused(
            "gzip without its checksum",
            &gz[..gz.len() - 8],
            "",
            "cut short or corrupt after 660000 bytes of text",
        ),
        refused("gzip, flipped", flipped(&gz), "", "odd: gzip data"),
        refused(
            "gzip with a tail",
            [&gz[..], b"trailing"].concat(),
            "",
            "odd: gzip data",
        ),
        refused(
            "zstd, cut",
            &zst[..zst.len() / 2],
            "",
            "odd: zstd data is cut short or corrupt after ",
        ),
        refused("zstd, flipped", flipped(&zst), "", "odd: zstd data"),
        refused(
            "zstd with a large window",
            bomb,
            "",
            "odd: zstd data needs a window of over 128 MiB",
        ),
    ]
}

fn foreign() -> Vec<Case> {
    let text = lines(&md5s());
    let magic = |magic: &[u8]| [magic, &gzip(text.as_bytes())].concat();
    let mut tar = vec![0; 512];
    tar[..8].copy_from_slice(b"dump.txt");
    tar[257..262].copy_from_slice(b"ustar");
    tar.extend_from_slice(text.as_bytes());
    let parquet = "is a Parquet file (--format parquet)";
    vec![
        refused("ZIP", magic(b"PK\x03\x04\x14\0"), "", "is a ZIP archive"),
        refused("tar.gz", gzip(&tar), "", "is a tar archive"),
        refused(
            "gzip in gzip",
            gzip(&gzip(text.as_bytes())),
            "",
            "is gzip data within",
        ),
        refused("Parquet as csv", magic(b"PAR1"), CSV, parquet),
    ]
}
