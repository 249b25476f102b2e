//! Input sources: paths, globs, URLs and stdin from the command line, opened and decompressed.
//!
//! Content is recognized by its first bytes (`content.rs`), never by a file's name. Memory is
//! bounded: gzip has a window of 32 KiB, and a zstd frame that needs over 128 MiB is rejected.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufReader, Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use flate2::read::MultiGzDecoder;

use rtad_store::UrlError;
use rtad_store::object::{Object, Prefix};

use super::batches::Batches;
use super::content::{Compression, HEAD_BYTES, could_be_id, foreign};
use super::error::InputError;
use super::line_ends::LineEnds;
use super::listed::Listed;
use super::pattern::{WILDCARDS, files_below, is_of_program, matches};
use super::remote::{Remote, store_error};
use super::table_folders::TableFolders;
use crate::progress::{Bytes, CountedReader};

/// The default limit of the `zstd` command (`--long=27`).
const MAX_WINDOW_LOG: u32 = 27;
const READ_AHEAD_BYTES: usize = 256 << 10;

/// One input to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    Stdin,
    File(PathBuf),
    /// A URL without secrets.
    Remote(String),
    /// An object below a prefix.
    Listed(Listed),
    /// Rows of the program around the loader.
    Batches(Batches),
}

impl Source {
    /// Its name in messages and in the rejects file.
    pub fn name(&self) -> String {
        match self {
            Self::Stdin | Self::Batches(_) => "-".to_owned(),
            Self::File(path) => path.display().to_string(),
            Self::Remote(url) => url.clone(),
            Self::Listed(object) => object.url().to_owned(),
        }
    }

    /// Size and version; neither of a stream, nor of an input that cannot be opened.
    pub fn stored(&self) -> Stored {
        match self {
            Self::Stdin | Self::Batches(_) => Stored::default(),
            Self::File(path) => match std::fs::metadata(path) {
                Ok(file) if file.is_file() => Stored {
                    size_bytes: Some(file.len()),
                    modified: file.modified().ok(),
                    ..Stored::default()
                },
                _ => Stored::default(),
            },
            Self::Remote(url) => match Remote::open(url) {
                Ok(object) => Stored {
                    size_bytes: Some(object.size_bytes()),
                    version: object.version(),
                    ..Stored::default()
                },
                Err(_) => Stored::default(),
            },
            Self::Listed(object) => Stored {
                size_bytes: Some(object.size_bytes()),
                version: object.version(),
                ..Stored::default()
            },
        }
    }

    /// Whether its reader waits for a server.
    pub const fn is_remote(&self) -> bool {
        matches!(self, Self::Remote(_) | Self::Listed(_))
    }
}

/// A source as it is stored.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Stored {
    /// Compressed if it is.
    pub size_bytes: Option<u64>,
    /// Version or entity tag of an object.
    pub version: Option<String>,
    /// Time of a file's last change.
    pub modified: Option<SystemTime>,
}

/// Sources of the arguments: a file of exactly that name, the files below a folder, the objects
/// below a prefix, otherwise the sorted matches of the pattern.
///
/// # Errors
///
/// No such file; or one in the folder of a table. A shell may have expanded the pattern, so a name
/// is refused there too.
pub fn expand(inputs: &[OsString]) -> Result<Vec<Source>, InputError> {
    let mut sources = Vec::new();
    let mut folders = TableFolders::default();
    for input in inputs {
        if input == "-" {
            if sources.contains(&Source::Stdin) {
                return Err(InputError::StdinTwice);
            }
            sources.push(Source::Stdin);
            continue;
        }

        let path = PathBuf::from(input);
        if path.exists() {
            add_path(path, &mut folders, &mut sources)?;
            continue;
        }

        let shown = path.display().to_string();
        if shown.contains("://") {
            match of_url(&shown)? {
                Source::File(path) => add_path(path, &mut folders, &mut sources)?,
                _ if Prefix::is_prefix(&shown) => {
                    sources.extend(Listed::list(&shown)?.into_iter().map(Source::Listed));
                }
                source => sources.push(source),
            }
            continue;
        }

        let pattern = input.to_str().filter(|text| text.contains(WILDCARDS));
        let Some(pattern) = pattern else {
            // Ids have 12 characters or more.
            let is_name = shown.len() < 12 || shown.contains(['/', '.']) || !could_be_id(&shown);
            let input = if is_name {
                shown
            } else {
                "(hidden: looks like an id)".to_owned()
            };
            return Err(InputError::Missing { input });
        };

        let before = sources.len();
        for found in matches(pattern)? {
            folders.refuse_table(&found)?;
            if !found.is_dir() {
                sources.push(Source::File(found));
            } else if !pattern.contains("**") {
                // `**` matches the files in it too.
                return Err(InputError::Directory {
                    input: found.display().to_string(),
                });
            }
        }
        if sources.len() == before {
            return Err(InputError::NoMatch { input: shown });
        }
    }
    Ok(sources)
}

/// Adds a file, or the files below a folder.
fn add_path(
    path: PathBuf,
    folders: &mut TableFolders,
    sources: &mut Vec<Source>,
) -> Result<(), InputError> {
    folders.refuse_table(&path)?;
    if !path.is_dir() {
        sources.push(Source::File(path));
        return Ok(());
    }

    // A shell's pattern also finds `_temporary`, of a job that has not ended.
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if name.starts_with('_') && is_of_program(&name) {
        return Err(InputError::Directory {
            input: path.display().to_string(),
        });
    }
    let files = files_below(&path)?;
    if files.is_empty() {
        return Err(InputError::NoFile {
            input: path.display().to_string(),
            found: path.read_dir().map_or(0, Iterator::count),
        });
    }
    for file in files {
        folders.refuse_table(&file)?;
        sources.push(Source::File(file));
    }
    Ok(())
}

/// Source of a URL: an object, a prefix, or a local file.
fn of_url(url: &str) -> Result<Source, InputError> {
    if let Some(path) = url.strip_prefix("file://")
        && path.starts_with('/')
    {
        let path = PathBuf::from(path);
        if path.exists() {
            return Ok(Source::File(path));
        }
        return Err(InputError::Missing {
            input: url.to_owned(),
        });
    }

    let checked = if Prefix::is_prefix(url) {
        Prefix::check_url(url)
    } else {
        Object::check_url(url)
    };
    match checked {
        Ok(()) if url.contains(['*', '[']) => Err(InputError::Url {
            input: url.to_owned(),
            reason: "it is a pattern; a URL names one object, or all below a prefix/",
        }),
        Ok(()) => Ok(Source::Remote(url.to_owned())),
        // The URL in the error has no secrets.
        Err(UrlError { url, reason }) => Err(InputError::Url { input: url, reason }),
    }
}

/// An open input of text, decompressed.
pub struct Opened {
    name: String,
    reader: Box<dyn Read + Send>,
    compression: Compression,
    text_bytes: u64,
    line_ends: LineEnds,
}

impl Opened {
    /// Opens a source, counts the bytes that are read of it, and decompresses it. Cells of csv have
    /// a `delimiter`.
    ///
    /// # Errors
    ///
    /// The source cannot be read, or is not text.
    pub fn open(
        source: &Source,
        bytes: &Arc<Bytes>,
        delimiter: Option<u8>,
    ) -> Result<Self, InputError> {
        let name = source.name();
        let reader = CountedReader {
            inner: open(source)?,
            bytes: Arc::clone(bytes),
        };

        let failed = |error| InputError::open(&name, error);
        let (magic, whole) = peek(reader, 4).map_err(failed)?;
        let compression = Compression::of(&magic);
        let reader: Box<dyn Read + Send> = match compression {
            Compression::None => Box::new(whole),
            Compression::Gzip => Box::new(MultiGzDecoder::new(BufReader::with_capacity(
                READ_AHEAD_BYTES,
                whole,
            ))),
            Compression::Zstd => {
                let mut decoder = zstd::Decoder::new(whole).map_err(failed)?;
                decoder.window_log_max(MAX_WINDOW_LOG).map_err(failed)?;
                Box::new(decoder)
            }
        };

        let mut opened = Self {
            name,
            reader,
            compression,
            text_bytes: 0,
            line_ends: LineEnds::default(),
        };

        let reader = std::mem::replace(&mut opened.reader, Box::new(io::empty()));
        let (head, whole) = peek(reader, HEAD_BYTES).map_err(|error| opened.failed(error))?;
        if let Some(found) = foreign(&head, delimiter) {
            return Err(InputError::Foreign {
                input: opened.name,
                found,
            });
        }
        opened.reader = Box::new(whole);
        Ok(opened)
    }

    /// Its name in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The error for a failed read at the current offset.
    pub fn failed(&self, source: io::Error) -> InputError {
        let input = self.name.clone();
        let offset = self.text_bytes;

        match (self.compression, store_error(source)) {
            (_, Ok(source)) => InputError::Fetch {
                input,
                offset,
                source,
            },
            (Compression::None, Err(source)) => InputError::Read {
                input,
                offset,
                source,
            },
            // zstd's own text: its error code is lost in an `io::Error`.
            (Compression::Zstd, Err(source))
                if source.to_string().contains("requires too much memory") =>
            {
                InputError::Window { input }
            }
            (compression, Err(source)) => InputError::Corrupt {
                input,
                encoding: compression.as_str(),
                offset,
                source,
            },
        }
    }
}

fn open(source: &Source) -> Result<Box<dyn Read + Send>, InputError> {
    match source {
        Source::Stdin => Ok(Box::new(io::stdin())),
        Source::Batches(_) => unreachable!("their layout is read without opening them"),
        Source::File(path) => {
            let input = source.name();
            match open_file(path) {
                Ok(Some(file)) => Ok(Box::new(file)),
                Ok(None) => Err(InputError::Directory { input }),
                Err(source) => Err(InputError::Open { input, source }),
            }
        }
        Source::Listed(object) => Ok(Box::new(object.open())),
        Source::Remote(url) => {
            let found = Remote::open(url);
            Ok(Box::new(found.map_err(|error| {
                InputError::open(&source.name(), error)
            })?))
        }
    }
}

/// Opens a file; `None` if it is a folder.
fn open_file(path: &Path) -> io::Result<Option<File>> {
    let file = File::open(path)?;
    if file.metadata()?.is_dir() {
        return Ok(None);
    }
    Ok(Some(file))
}

/// The first bytes of a reader, and a reader that begins with them.
fn peek<R: Read>(mut reader: R, bytes: usize) -> io::Result<(Vec<u8>, impl Read + use<R>)> {
    let mut head = Vec::with_capacity(bytes);
    reader.by_ref().take(bytes as u64).read_to_end(&mut head)?;
    Ok((head.clone(), Cursor::new(head).chain(reader)))
}

impl Read for Opened {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.reader.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(count) => {
                    self.text_bytes += count as u64;
                    let length = self.line_ends.convert(&mut buffer[..count]);
                    // A read of nothing but the LF of a CRLF is not the end.
                    if length > 0 || count == 0 {
                        return Ok(length);
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;

    use super::*;

    #[test]
    fn names_that_are_not_utf_8_match() {
        let folder = tempfile::tempdir().unwrap();
        let in_gbk = folder.path().join(OsStr::from_bytes(b"\xc9\xe8\xb1\xb8"));
        let dotted = folder.path().join(OsStr::from_bytes(b".\xc9.txt"));
        let files = [
            &in_gbk.with_extension("txt"),
            &in_gbk.join("a.txt"),
            &dotted,
        ];
        std::fs::create_dir(&in_gbk).unwrap();
        files
            .iter()
            .for_each(|file| std::fs::write(file, "").unwrap());
        for (pattern, expected) in [
            ("*.txt", &files[..1]),
            ("*/a.txt", &files[1..2]),
            ("*/*", &files[1..2]),
            (".*.txt", &files[2..]),
        ] {
            let sources = expand(&[folder.path().join(pattern).into()]).unwrap();
            let expected: Vec<_> = expected
                .iter()
                .map(|file| Source::File((*file).clone()))
                .collect();
            assert_eq!(sources, expected, "{pattern}");
        }
        let sources = expand(&[folder.path().join("**/*.txt").into()]).unwrap();
        assert_eq!(sources.len(), 2);
        assert!(expand(&[folder.path().join("b*.txt").into()]).is_err());
    }

    /// Files that a pattern finds in the folders of jobs that write there, without the folder's
    /// path.
    #[test]
    fn patterns_leave_out_files_of_programs() {
        let folder = tempfile::tempdir().unwrap();
        for name in [
            "_SUCCESS",
            "_committed_1",
            "part-0",
            ".part-0.crc",
            "_temporary/0/part-1",
            ".spark-staging-1/part-2",
            "day=24/part-3",
            "day=24/_metadata",
            "_hour=1/part-4",
        ] {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        for (pattern, expected) in [
            ("**", &["_hour=1/part-4", "day=24/part-3", "part-0"][..]),
            ("**/part-*", &["_hour=1/part-4", "day=24/part-3", "part-0"]),
            ("*/*", &["_hour=1/part-4", "day=24/part-3"]),
            ("p*", &["part-0"]),
            ("_SUCCESS", &["_SUCCESS"]),
            ("_S*", &["_SUCCESS"]),
            ("_temporary/**", &["_temporary/0/part-1"]),
            ("_t*/?/*", &["_temporary/0/part-1"]),
            ("**/_m*", &["day=24/_metadata"]),
            (".*/*", &[".spark-staging-1/part-2"]),
        ] {
            let root = format!("{}/", folder.path().display());
            let sources = expand(&[format!("{root}{pattern}").into()]).unwrap();
            let names: Vec<String> = sources.iter().map(Source::name).collect();
            let found: Vec<&str> = names
                .iter()
                .map(|n| n.strip_prefix(&root).unwrap())
                .collect();
            assert_eq!(found, expected, "{pattern}");
        }
        let by_folder = expand(&[folder.path().into()]).unwrap();
        assert_eq!(
            by_folder,
            expand(&[folder.path().join("**").into()]).unwrap()
        );
        let unfinished = expand(&[folder.path().join("_temporary").into()]).unwrap_err();
        assert!(
            matches!(unfinished, InputError::Directory { .. }),
            "{unfinished}"
        );
        let refused = expand(&[folder.path().join("[_.]S*").into()]).unwrap_err();
        assert!(
            refused.to_string().contains("begin with _ or ."),
            "{refused}"
        );
    }

    #[test]
    fn file_of_that_name_precedes_a_pattern() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a[1].txt", "a1.txt", "b.txt", "a.txt", ".a.txt", "._b.txt"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let expanded = |name: &str| -> Vec<String> {
            let sources = expand(&[folder.path().join(name).into()]).unwrap();
            sources
                .iter()
                .map(|s| s.name().rsplit('/').next().unwrap().to_owned())
                .collect()
        };
        assert_eq!(expanded("a[1].txt"), ["a[1].txt"]);
        assert_eq!(expanded("[ab].txt"), ["a.txt", "b.txt"]);
        assert_eq!(expanded("**/*b.txt"), ["b.txt"]);
        assert_eq!(expanded(".*.txt"), ["._b.txt", ".a.txt"]);
        std::fs::create_dir(folder.path().join("c.txt")).unwrap();
        std::fs::write(folder.path().join("c.txt/d.txt"), "").unwrap();
        assert_eq!(
            expanded("**/*.txt"),
            ["a.txt", "a1.txt", "a[1].txt", "b.txt", "d.txt"]
        );
        assert_eq!(expanded("a*.txt").len(), 3);
        assert_eq!(expanded("**/**/d.txt"), ["d.txt"]);
        assert_eq!(expanded("*/../b?txt"), ["b.txt"]);
        let refused = expand(&[folder.path().join("*.txt").into()])
            .unwrap_err()
            .to_string();
        assert!(refused.contains("c.txt"), "{refused}");
        assert!(matches!(
            expand(&["nothing-*".into()]),
            Err(InputError::NoMatch { .. })
        ));
        assert!(matches!(
            expand(&["-".into(), "-".into()]),
            Err(InputError::StdinTwice)
        ));
        let url = "https://host/dump".to_owned();
        assert_eq!(
            expand(&[url.clone().into()]).unwrap(),
            [Source::Remote(url)]
        );
        assert!(matches!(
            expand(&["file:///nothing".into()]),
            Err(InputError::Missing { .. })
        ));
        for (url, shown) in [
            ("https://me:hush@host/dump", "https://…@host/dump"),
            ("https://host/dump?sig=hush", "https://host/dump?…"),
            ("s3://ads/*.gz", "s3://ads/*.gz"),
            ("ftp://host/dump", "ftp://host/dump"),
        ] {
            let Err(InputError::Url { input, .. }) = expand(&[url.into()]) else {
                panic!("{url}")
            };
            assert_eq!(input, shown);
        }
    }
}
