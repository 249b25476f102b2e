//! Values that several tables use. Each function is for `deserialize_with` or `serialize_with`, and
//! says which values are accepted.

use std::fmt::{self, Display};
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serializer};

use crate::text::Named;

/// A millisecond, in milliseconds.
pub const MILLISECOND: u64 = 1;
/// A second, in milliseconds.
pub const SECOND: u64 = 1_000;
/// A minute, in milliseconds.
pub const MINUTE: u64 = 60 * SECOND;
/// An hour, in milliseconds.
pub const HOUR: u64 = 60 * MINUTE;
/// A day, in milliseconds.
pub const DAY: u64 = 24 * HOUR;
/// A name of an audience, a strategy and so on.
pub const NAME: &str = "1 to 64 of a-z, 0-9, _ and -, starting with a letter or digit";

/// A text that `parse` accepts, or the accepted texts.
///
/// # Errors
///
/// No text, or one that is not accepted.
pub fn text<'de, D: Deserializer<'de>, T>(
    deserializer: D,
    accepted: &str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<T, D::Error> {
    let text = String::deserialize(deserializer).map_err(|_| de::Error::custom(accepted))?;
    parse(&text).ok_or_else(|| de::Error::custom(accepted))
}

/// As [`text`], for values that messages must not show.
///
/// # Errors
///
/// As [`text`].
pub fn hidden<'de, D: Deserializer<'de>, T>(
    deserializer: D,
    accepted: &str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<T, D::Error> {
    let value = String::deserialize(deserializer)
        .ok()
        .and_then(|text| parse(&text));
    value.ok_or_else(|| {
        de::Error::custom(format_args!(
            "has a value that is not one; accepted: {accepted}"
        ))
    })
}

/// A text with its location.
///
/// # Errors
///
/// No text, or an empty one.
pub fn named<'de, D: Deserializer<'de>, T: From<Named>>(
    deserializer: D,
    accepted: &str,
) -> Result<T, D::Error> {
    Named::deserialize(deserializer)
        .map(T::from)
        .map_err(|_| de::Error::custom(accepted))
}

/// An address and port.
///
/// # Errors
///
/// Another value.
pub fn address<'de, D: Deserializer<'de>, T: From<SocketAddr>>(
    deserializer: D,
) -> Result<T, D::Error> {
    let accepted = "an address and port, such as 0.0.0.0:8080 or [::1]:8080";
    text(deserializer, accepted, |text| {
        text.parse().ok().map(T::from)
    })
}

/// A name; see [`NAME`].
///
/// # Errors
///
/// Another value.
pub fn name<'de, D: Deserializer<'de>, N: FromStr + Into<T>, T>(
    deserializer: D,
) -> Result<T, D::Error> {
    text(deserializer, NAME, |text| {
        text.parse::<N>().ok().map(Into::into)
    })
}

/// A text that is not empty.
///
/// # Errors
///
/// Another value.
pub fn filled<'de, D: Deserializer<'de>, T: From<String>>(deserializer: D) -> Result<T, D::Error> {
    let accepted = "a string that is not empty";
    text(deserializer, accepted, |text| {
        (!text.is_empty()).then(|| text.to_owned().into())
    })
}

/// A duration between two bounds in milliseconds.
///
/// # Errors
///
/// Another value.
pub fn time<'de, D: Deserializer<'de>, T: From<Duration>, const LEAST: u64, const MOST: u64>(
    deserializer: D,
) -> Result<T, D::Error> {
    let range = Duration::from_millis(LEAST)..=Duration::from_millis(MOST);
    text(deserializer, &accepted_time(&range), |text| {
        parse_time(text, &range).map(T::from)
    })
}

/// The duration of a text, if it is in a range.
pub fn parse_time(text: &str, range: &RangeInclusive<Duration>) -> Option<Duration> {
    humantime::parse_duration(text)
        .ok()
        .filter(|time| range.contains(time))
}

/// The words for durations of a range.
pub fn accepted_time(range: &RangeInclusive<Duration>) -> String {
    let units = [(DAY, "d"), (HOUR, "h"), (MINUTE, "m"), (SECOND, "s")];
    let [least, most] = [range.start(), range.end()].map(|time| {
        let time = time.as_millis() as u64;
        match units
            .into_iter()
            .find(|(unit, _)| time.is_multiple_of(*unit))
        {
            _ if time == 0 => "0s".to_owned(),
            Some((unit, name)) => format!("{}{name}", time / unit),
            None => format!("{time}ms"),
        }
    });
    format!("a duration from {least} to {most}")
}

/// A whole number between two bounds.
///
/// # Errors
///
/// Another value.
pub fn number<'de, D: Deserializer<'de>, T: TryFrom<i64>, const LEAST: i64, const MOST: i64>(
    deserializer: D,
) -> Result<T, D::Error> {
    if let Ok(number) = i64::deserialize(deserializer)
        && (LEAST..=MOST).contains(&number)
        && let Ok(number) = T::try_from(number)
    {
        return Ok(number);
    }
    Err(de::Error::custom(format_args!(
        "a whole number from {LEAST} to {MOST}"
    )))
}

/// A number of bytes: whole, or a text with a unit.
///
/// # Errors
///
/// Another value, or one under `LEAST`.
pub fn size<'de, D: Deserializer<'de>, const LEAST: u64>(deserializer: D) -> Result<u64, D::Error> {
    struct Size<const LEAST: u64>(PhantomData<()>);
    impl<const LEAST: u64> Visitor<'_> for Size<LEAST> {
        type Value = u64;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            match LEAST {
                1 => f.write_str("a size, such as 64KiB or 8GiB"),
                _ => write!(f, "a size from {}, such as 64KiB or 8GiB", Bytes(LEAST)),
            }
        }

        fn visit_i64<E: de::Error>(self, bytes: i64) -> Result<u64, E> {
            let bytes = u64::try_from(bytes).ok().filter(|bytes| *bytes >= LEAST);
            bytes.ok_or_else(|| E::invalid_type(de::Unexpected::Other("size"), &self))
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<u64, E> {
            let bytes = text
                .parse::<bytesize::ByteSize>()
                .ok()
                .map(|size| size.as_u64());
            let bytes = bytes.filter(|bytes| *bytes >= LEAST);
            bytes.ok_or_else(|| E::invalid_type(de::Unexpected::Other("size"), &self))
        }
    }
    deserializer.deserialize_any(Size::<LEAST>(PhantomData))
}

/// Bytes in the largest exact unit: printed sizes read back as the same number.
struct Bytes(u64);

impl Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(1_u64 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
        match units
            .into_iter()
            .find(|(unit, _)| self.0.is_multiple_of(*unit))
        {
            Some((unit, name)) => write!(f, "{}{name}", self.0 / unit),
            None => self.0.fmt(f),
        }
    }
}

/// A time in the largest exact unit, as people write it: `1d`, not `1day`.
#[derive(Debug, Clone, Copy)]
pub struct Time(pub Duration);

impl Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [
            (86_400_000, "d"),
            (3_600_000, "h"),
            (60_000, "m"),
            (1000, "s"),
            (1, "ms"),
        ];

        let millis = self.0.as_millis();
        let is_exact = |unit: u128| {
            self.0.subsec_nanos().is_multiple_of(1_000_000) && millis.is_multiple_of(unit)
        };
        match units
            .into_iter()
            .find(|(unit, _)| millis > 0 && is_exact(*unit))
        {
            Some((unit, name)) => write!(f, "{}{name}", millis / unit),
            None => humantime::format_duration(self.0).fmt(f),
        }
    }
}

/// Prints a size.
///
/// # Errors
///
/// Those of the serializer.
pub fn as_size<S: Serializer>(bytes: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&Bytes(*bytes))
}

/// Prints a duration.
///
/// # Errors
///
/// Those of the serializer.
pub fn as_time<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&Time(*time))
}

/// Prints a duration that may be unset.
///
/// # Errors
///
/// Those of the serializer.
pub fn as_optional_time<S: Serializer>(
    time: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match time {
        Some(time) => as_time(time, serializer),
        None => serializer.serialize_none(),
    }
}
