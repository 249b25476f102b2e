//! Folders of tables: Delta, Iceberg and Hudi.
//!
//! Such a folder keeps files of earlier versions. Which rows the table has is said by its log
//! alone, so its Parquet files, read as they are, bring back devices that were removed.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use super::error::InputError;

/// A format of tables.
pub struct TableFormat {
    name: &'static str,
    /// Programs that read such tables.
    reader: &'static str,
}

const DELTA: TableFormat = TableFormat {
    name: "Delta",
    reader: "DuckDB (delta_scan) or Spark",
};
const ICEBERG: TableFormat = TableFormat {
    name: "Iceberg",
    reader: "DuckDB (iceberg_scan) or Spark",
};
const HUDI: TableFormat = TableFormat {
    name: "Hudi",
    reader: "Spark",
};

impl TableFormat {
    /// Folders of logs in the roots of tables.
    pub const FOLDERS: [&str; 3] = ["_delta_log", ".hoodie", "metadata"];

    /// The first table among the objects of a bucket, by their names: its root and its format.
    pub fn among(names: &[&str]) -> Option<(String, Self)> {
        for name in names {
            let (folder, file) = name.rsplit_once('/').unwrap_or(("", name));
            let mut root = String::new();
            for part in folder.split('/') {
                match part {
                    "_delta_log" => return Some((root, DELTA)),
                    ".hoodie" => return Some((root, HUDI)),
                    _ => root = format!("{root}{part}/"),
                }
            }
            if let Some(root) = root.strip_suffix("metadata/")
                && file.ends_with(".metadata.json")
            {
                return Some((root.to_owned(), ICEBERG));
            }
        }
        None
    }

    /// The format of the table whose root is `folder`.
    fn of(folder: &Path) -> Option<Self> {
        if folder.join("_delta_log").is_dir() {
            return Some(DELTA);
        }
        if folder.join(".hoodie").is_dir() {
            return Some(HUDI);
        }
        for entry in folder.join("metadata").read_dir().ok()?.flatten() {
            if entry
                .file_name()
                .to_string_lossy()
                .ends_with(".metadata.json")
            {
                return Some(ICEBERG);
            }
        }
        None
    }
}

/// Folders that were looked at.
#[derive(Debug, Default)]
pub struct TableFolders {
    /// Neither these nor the folders around them are tables.
    plain: HashSet<PathBuf>,
}

impl TableFolders {
    /// Refuses a file or a folder that is within a table's, or a link to one.
    pub fn refuse_table(&mut self, input: &Path) -> Result<(), InputError> {
        // The error of a path is that of opening it.
        let Ok(path) = input.canonicalize() else {
            return Ok(());
        };

        let is_file = !path.is_dir();
        for folder in path.ancestors().skip(usize::from(is_file)) {
            if self.plain.contains(folder) {
                break;
            }
            if let Some(format) = TableFormat::of(folder) {
                let input = input.display().to_string();
                return Err(refused_table(
                    &input,
                    &folder.display().to_string(),
                    &format,
                ));
            }
            self.plain.insert(folder.to_owned());
        }
        Ok(())
    }
}

/// The error of an input in a table's folder.
pub fn refused_table(input: &str, folder: &str, format: &TableFormat) -> InputError {
    InputError::Table {
        input: input.to_owned(),
        folder: match folder {
            "" => "the bucket".to_owned(),
            folder => folder.to_owned(),
        },
        format: format.name,
        reader: format.reader,
    }
}

#[cfg(test)]
mod tests {
    use super::super::open::expand;

    #[test]
    fn links_to_files_of_tables_are_refused() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("table/_delta_log")).unwrap();
        std::fs::write(root.path().join("table/part-0"), "").unwrap();
        let link = root.path().join("link");
        std::os::unix::fs::symlink(root.path().join("table/part-0"), &link).unwrap();
        let error = expand(&[link.into()]).unwrap_err().to_string();
        assert!(
            error.contains("link: belongs to the Delta table in "),
            "{error}"
        );
    }

    #[test]
    fn files_of_tables_are_refused() {
        for (log, format) in [
            ("_delta_log/00000000000000000000.json", "Delta"),
            ("metadata/00000-1.metadata.json", "Iceberg"),
            ("metadata/v1.gz.metadata.json", "Iceberg"),
            (".hoodie/hoodie.properties", "Hudi"),
            ("metadata/columns.json", ""),
            ("delta_log/0.json", ""),
        ] {
            let root = tempfile::tempdir().unwrap();
            for name in [log, "day=1/part-0", "part-0"] {
                let path = root.path().join("table").join(name);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, "").unwrap();
            }
            for input in [
                "table/part-0",
                "table/*-0",
                "table/day=*/*",
                "**/part-0",
                "table",
                "*/day=1/part-0",
            ] {
                let found = expand(&[root.path().join(input).into()]);
                if format.is_empty() {
                    assert!(found.is_ok(), "{log} {input}: {found:?}");
                    continue;
                }
                let error = found.expect_err(input).to_string();
                let expected = format!("belongs to the {format} table in ");
                assert!(error.contains(&expected), "{log} {input}: {error}");
            }
        }
    }
}
