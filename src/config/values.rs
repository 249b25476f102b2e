//! Types of values that several tables use: parsing and printing.

use std::collections::HashSet;
use std::ops::RangeInclusive;
use std::time::Duration;

use serde::Serializer;
use serde::de::value::{Error, StrDeserializer};
use serde::de::{DeserializeOwned, IntoDeserializer as _};

use super::reader::Document;

pub(super) const SECOND: Duration = Duration::from_secs(1);
pub(super) const HOUR: Duration = Duration::from_secs(3600);
pub(super) const DAY: Duration = Duration::from_secs(24 * 3600);
pub(super) const SIZE: &str = "a size, such as 64KiB or 8GiB";
pub(super) const NAME: &str = "1 to 64 of a-z, 0-9, _ and -, starting with a letter or digit";

pub(super) fn number(range: RangeInclusive<usize>) -> impl Fn(&str) -> Option<usize> {
    move |text| text.parse().ok().filter(|number| range.contains(number))
}

pub(super) fn duration(range: RangeInclusive<Duration>) -> impl Fn(&str) -> Option<Duration> {
    move |text| humantime::parse_duration(text).ok().filter(|duration| range.contains(duration))
}

pub(super) fn size(text: &str) -> Option<u64> {
    text.parse::<bytesize::ByteSize>().ok().map(|size| size.as_u64()).filter(|size| *size > 0)
}

/// A variant of an enum, by its serde name.
pub(super) fn word<T: DeserializeOwned>(text: &str) -> Option<T> {
    let text: StrDeserializer<'_, Error> = text.into_deserializer();
    T::deserialize(text).ok()
}

/// Records duplicate names.
pub(super) fn duplicates<'a>(
    d: &mut Document<'_>,
    kind: &str,
    names: impl Iterator<Item = &'a str>,
) {
    let mut seen = HashSet::new();
    for name in names {
        if !seen.insert(name) {
            d.mistake(
                None,
                kind,
                &format!("has the name {name:?} twice"),
                "a name of its own for each",
            );
        }
    }
}

pub(super) fn as_duration<S: Serializer>(
    duration: &Duration,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&humantime::format_duration(*duration))
}

pub(super) fn as_optional_duration<S: Serializer>(
    duration: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match duration {
        Some(duration) => as_duration(duration, serializer),
        None => serializer.serialize_none(),
    }
}

pub(super) fn as_size<S: Serializer>(bytes: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    // The largest exact unit: printed sizes must read back as the same number.
    let units = [(1_u64 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match units.into_iter().find(|(unit, _)| bytes.is_multiple_of(*unit)) {
        Some((unit, name)) => serializer.collect_str(&format_args!("{}{name}", bytes / unit)),
        None => serializer.collect_str(bytes),
    }
}
