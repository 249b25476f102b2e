//! Pages that say of themselves what would cost any reader its memory. Written by hand, as no writer would.

use std::sync::Arc;

use parquet::basic::Type;

use super::super::PageFault;
use super::super::access::Access;
use super::super::codec::Codec;
use super::super::header::{DATA, DATA_V2, DICTIONARY, Header, schema_depth};
use super::super::pages::{Pages, Shape};
use super::super::thrift::Broken;
use super::super::{caught::caught, delta};

fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number > 0x7f {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

fn zigzag(number: i64) -> Vec<u8> {
    varint((number << 1 ^ number >> 63) as u64)
}

/// Fields of a struct, one after another, each a number.
fn numbers(numbers: &[i64]) -> Vec<u8> {
    let mut bytes: Vec<u8> =
        numbers.iter().flat_map(|number| [vec![0x15], zigzag(*number)].concat()).collect();
    bytes.push(0);
    bytes
}

/// A page: its kind, sizes, and the part of its header that is its kind's.
fn page(kind: i32, text: i64, stored: &[u8], own: &[i64]) -> Vec<u8> {
    let step = match kind {
        DATA => 2,
        DICTIONARY => 4,
        _ => 5,
    };
    let mut head = numbers(&[kind.into(), text, stored.len() as i64]);
    head.pop();
    head.push(step << 4 | 0x0c);
    [head, numbers(own), vec![0], stored.to_vec()].concat()
}

/// The first page of a column of required texts, or why there is none.
fn first(bytes: Vec<u8>, codec: Codec) -> Result<u32, String> {
    let shape = Shape { codec, physical: Type::BYTE_ARRAY, width: 0, max_level: 0 };
    let part = 0..bytes.len() as u64;
    let mut pages = Pages::new(Arc::new(Access::Memory(bytes)), part, shape, 1 << 40);
    match caught(|| pages.next().expect("there is one")) {
        Ok(page) => Ok(page.num_values()),
        Err(PageFault::Corrupt(reason)) => Err(reason),
        Err(other) => panic!("{other:?}"),
    }
}

#[test]
fn a_page_is_as_large_as_it_says_and_no_larger_than_the_bound() {
    assert_eq!(first(page(DATA, 8, &[0; 8], &[2, 0, 3, 3]), Codec::None), Ok(2));
    assert_eq!(first(page(DATA_V2, 8, &[0; 8], &[2, 0, 2, 0, 0, 0]), Codec::None), Ok(2));
    let huge = i64::from(i32::MAX);
    let zeros = |len: usize| vec![0; len];
    let gzip = {
        use std::io::Write as _;
        let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        writer.write_all(&zeros(50 << 20)).unwrap();
        writer.finish().unwrap()
    };
    let zstd = zstd::bulk::compress(&zeros(50 << 20), 19).unwrap();
    let cannot = "has a page that cannot be decompressed to the size it says";
    for (bytes, codec, says) in [
        (
            page(DATA, huge, &[0; 8], &[2, 0, 3, 3]),
            Codec::Snappy,
            "has a page of 2147483647 bytes, the limit is",
        ),
        (page(DATA, -1, &[0; 8], &[2, 0, 3, 3]), Codec::None, "has a page with a size below nothing"),
        (page(DATA, 9, &[0; 8], &[2, 0, 3, 3]), Codec::None, "has a page of another size than it says"),
        (page(DATA, 8, &[0; 8], &[-2, 0, 3, 3]), Codec::None, "has a page with a size below nothing"),
        (page(DATA, 8, &[0; 8], &[2, 99, 3, 3]), Codec::None, "has a page in an unknown encoding"),
        (
            page(DATA, 8, &[0; 8], &[2, 0, 3, 3])[..9].to_vec(),
            Codec::None,
            "has a page without a sound header",
        ),
        // 50 MiB of zeros that say they are 8 bytes.
        (page(DATA, 8, &gzip, &[2, 0, 3, 3]), Codec::Gzip, cannot),
        (page(DATA, 8, &zstd, &[2, 0, 3, 3]), Codec::Zstd, cannot),
        (page(DATA, 8, &[0xff; 64], &[2, 0, 3, 3]), Codec::Brotli, cannot),
        (page(DATA, 8, &[0xff; 64], &[2, 0, 3, 3]), Codec::Lz4, cannot),
        (page(DATA, 8, &[0xff; 64], &[2, 0, 3, 3]), Codec::Lz4Raw, cannot),
        (
            page(DICTIONARY, 8, &[0; 8], &[huge, 0]),
            Codec::None,
            "has a dictionary with more values than it holds",
        ),
        (page(DICTIONARY, 8, &[0; 8], &[1, 7]), Codec::None, "has a dictionary in an unknown encoding"),
        (
            page(DATA_V2, 8, &[0; 8], &[2, 3, 2, 0, 0, 0]),
            Codec::None,
            "has a page whose header contradicts itself",
        ),
        (
            page(DATA_V2, 8, &[0; 8], &[2, 0, 2, 0, 9, 0]),
            Codec::None,
            "has a page whose header contradicts itself",
        ),
        (
            page(DATA_V2, 8, &[0; 8], &[2, 0, 2, 0, huge, huge]),
            Codec::None,
            "has a page whose header contradicts itself",
        ),
        (page(DICTIONARY, 8, &[0; 8], &[1]), Codec::None, ""),
    ] {
        match first(bytes, codec) {
            Err(reason) => assert!(reason.starts_with(says) && !says.is_empty(), "{says}: {reason}"),
            Ok(_) => assert!(says.is_empty(), "{says}"),
        }
    }
}

#[test]
fn a_checksum_is_checked_if_there_is_one() {
    let mut crc = flate2::Crc::new();
    crc.update(&[0; 8]);
    let page = |sum: u32| {
        let mut head = numbers(&[0, 8, 8, (sum as i32).into()]);
        head.pop();
        [head, vec![0x1c], numbers(&[2, 0, 3, 3]), vec![0], vec![0; 8]].concat()
    };
    assert_eq!(first(page(crc.sum()), Codec::None), Ok(2));
    let wrong = first(page(crc.sum() ^ 1), Codec::None).unwrap_err();
    assert_eq!(wrong, "has a page whose checksum is wrong");
}

/// A run in blocks of 128, four of 32 each: how many numbers it says it has, and its blocks.
fn run(count: u64, blocks: &[&[u8]]) -> Vec<u8> {
    [varint(128), varint(4), varint(count), zigzag(7), blocks.concat()].concat()
}

#[test]
fn lengths_are_counted_before_memory_is_taken_for_them() {
    let block: &[u8] = &[0, 0, 0, 0, 0];
    assert_eq!(delta::run_bytes(&run(1, &[]), 10), Ok(5));
    assert_eq!(delta::run_bytes(&run(129, &[block]), 200), Ok(6 + 5));
    // Of the last block only as much as has numbers.
    let wide: &[u8] = &[0, 8, 8, 8, 8];
    let bits = [0; 32];
    assert_eq!(delta::run_bytes(&run(2, &[wide, &bits, b"rest"]), 10), Ok(5 + 5 + 32));
    assert_eq!(delta::run_bytes(&run(2, &[wide, &bits[1..]]), 10), Err(Broken::End));
    assert_eq!(delta::run_bytes(&run(11, &[block]), 10), Err(Broken::Bad));
    assert_eq!(delta::run_bytes(&run(1 << 40, &[]), 10), Err(Broken::Bad));
    assert_eq!(delta::run_bytes(&[0, 4, 1, 0], 10), Err(Broken::Bad));
    assert_eq!(delta::run_bytes(&[varint(1 << 40), varint(1), vec![1, 0]].concat(), 10), Err(Broken::Bad));
    for encoding in [6, 7] {
        let text = run(1 << 40, &[block]);
        let page = page(DATA, text.len() as i64, &text, &[5, encoding, 3, 3]);
        let reason = first(page, Codec::None).unwrap_err();
        assert_eq!(reason, "has a page whose lengths are not sound, or too many");
    }
}

/// A few bytes that make a reader copy terabytes: each text is all of the one before, with nothing behind it.
#[test]
fn what_texts_repeat_of_one_another_is_bounded() {
    let sum = |run: Vec<u8>| delta::run_sum(&run, 1 << 30).map(|(_, sum)| sum);
    let block = |least: i64, rest: &[u8]| [zigzag(least), rest.to_vec()].concat();
    assert_eq!(sum(run(0, &[])), Ok(0));
    assert_eq!(sum(run(129, &[&block(0, &[0; 4])])), Ok(129 * 7));
    // 7, 8, 9 and so on; then differences of 3 bits, which are 2 more than the smallest: 7, 9, 11.
    assert_eq!(sum(run(4, &[&block(1, &[0; 4])])), Ok(7 + 8 + 9 + 10));
    let bits = 0b010_010_u32.to_le_bytes();
    let packed = [&[3, 0, 0, 0][..], &bits, &[0; 8]].concat();
    assert_eq!(sum(run(3, &[&block(0, &packed)])), Ok(7 + 9 + 11));
    assert_eq!(sum(run(9, &[&block(-1, &[0; 4])])), Err(Broken::Bad), "below 0");
    assert_eq!(sum(run(2, &[&block(1 << 40, &[0; 4])])), Err(Broken::Bad));
    assert_eq!(sum(run(2, &[&block(0, &[[33, 0, 0, 0].as_slice(), &[0; 132]].concat())])), Err(Broken::Bad));

    // 33 texts: the first is `length` long, and the others repeat all of it and have nothing of their own.
    let texts = |length: u32| {
        let jump = [&[32, 0, 0, 0][..], &length.to_le_bytes(), &[0; 124]].concat();
        let prefixes = [varint(128), varint(4), varint(33), zigzag(0), block(0, &jump)].concat();
        let fall = [&[32, 0, 0, 0][..], &[0; 4], &length.to_le_bytes().repeat(31)].concat();
        let length = i64::from(length);
        let lengths = [varint(128), varint(4), varint(33), zigzag(length), block(-length, &fall)].concat();
        [prefixes, lengths, vec![b'a'; length as usize]].concat()
    };
    for (length, is_read) in [(40, true), (4 << 10, true), (200 << 10, false)] {
        let text = texts(length);
        let page = page(DATA, text.len() as i64, &text, &[33, 7, 3, 3]);
        match first(page, Codec::None) {
            Ok(values) => assert!(is_read && values == 33),
            Err(reason) => {
                assert!(!is_read, "{reason}");
                assert_eq!(
                    reason,
                    "has a page whose 33 texts repeat 6553600 bytes of one another, the limit is 4096 for each; \
                     write it in another encoding"
                );
            }
        }
    }
}

#[test]
fn a_schema_s_depth_is_known_before_anybody_recurses() {
    // The version, then the schema: groups of one child each, with nothing in the last.
    let schema = |depth: u64| {
        let mut bytes = [vec![0x15], zigzag(1), vec![0x19, 0xfc], varint(depth + 1)].concat();
        for _ in 0..depth {
            bytes.extend([vec![0x55], zigzag(1), vec![0]].concat());
        }
        bytes.extend([0, 0]);
        bytes
    };
    assert_eq!(schema_depth(&schema(3)), Ok(3));
    assert_eq!(schema_depth(&schema(100_000)), Ok(100_000));
    // A group of more members than there are elements, or of fewer than none.
    for children in [2, i64::from(i32::MAX), -1] {
        let root = [vec![0x55], zigzag(children), vec![0]].concat();
        assert_eq!(schema_depth(&[vec![0x29, 0x2c], root, vec![0, 0]].concat()), Err(Broken::Bad));
    }
    // More elements than there are bytes; structs in structs for ever.
    assert_eq!(schema_depth(&[0x19, 0xfc, 0xff, 0xff, 0xff, 0x7f, 0]), Err(Broken::End));
    assert_eq!(schema_depth(&[0x1c; 1000]), Err(Broken::Bad));
    assert_eq!(Header::read(&[0x9c; 1000]).unwrap_err(), Broken::Bad);
}
