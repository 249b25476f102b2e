//! One JSON object per line: finds the members that were asked for, and passes over the rest.
//!
//! Runs in the parser threads, on the blocks that `lines.rs` cuts. Nothing is built of what nobody asked for. What nests is gone into as far as a
//! column's name does; the rest is skipped without recursion, so no depth of nesting costs more than its bytes.
//!
//! An id is a string, or an integer, which stands for its digits. Of a member that comes twice the last counts.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::{Column, member};

/// What a row has in a column.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum Found<'a> {
    /// There is no such member, or one of those on the way is no object.
    #[default]
    Absent,
    Null,
    Text(Cow<'a, str>),
    Integer(i128),
    /// A fraction, a truth value, a list or an object.
    NoId,
}

/// A line that is no JSON object, or goes on after it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NoObject;

/// The columns, as members of objects: the place of each in what is found.
#[derive(Debug, Default)]
pub(super) struct Members(Vec<Member>);

#[derive(Debug)]
struct Member {
    name: String,
    columns: Vec<usize>,
    inner: Members,
}

impl Members {
    pub(super) fn new(columns: &[Column]) -> Self {
        let mut members = Self::default();
        for (place, column) in columns.iter().enumerate() {
            members.add(&member::path(&column.name), place);
        }
        members
    }

    fn add(&mut self, path: &[String], place: usize) {
        let [name, rest @ ..] = path else { return };
        let known = self.0.iter().position(|member| member.name == *name).unwrap_or_else(|| {
            self.0.push(Member { name: name.clone(), columns: Vec::new(), inner: Self::default() });
            self.0.len() - 1
        });
        match rest {
            [] => self.0[known].columns.push(place),
            rest => self.0[known].inner.add(rest, place),
        }
    }

    /// Fills in what a row has in each column. What it leaves of an earlier row is of no use to anybody.
    pub(super) fn find<'a>(&self, row: &'a [u8], found: &mut [Found<'a>]) -> Result<(), NoObject> {
        found.iter_mut().for_each(|found| *found = Found::Absent);
        let mut json = serde_json::Deserializer::from_slice(row);
        json.deserialize_map(Object { members: self, found })
            .and_then(|()| json.end())
            .map_err(|_| NoObject)
    }

    /// Forgets what an earlier member of the same name held.
    fn forget(&self, found: &mut [Found<'_>]) {
        for member in &self.0 {
            member.forget(found);
        }
    }
}

impl Member {
    fn forget(&self, found: &mut [Found<'_>]) {
        self.columns.iter().for_each(|place| found[*place] = Found::Absent);
        self.inner.forget(found);
    }
}

/// An object, some of whose members are wanted.
struct Object<'m, 'f, 'a> {
    members: &'m Members,
    found: &'f mut [Found<'a>],
}

impl<'a> Visitor<'a> for Object<'_, '_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut object: A) -> Result<(), A::Error> {
        while let Some(member) = object.next_key_seed(Name(self.members))? {
            match member {
                Some(member) => object.next_value_seed(Wanted { member, found: self.found })?,
                None => drop(object.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

/// A member's name: which of those that are wanted, if any.
struct Name<'m>(&'m Members);

impl<'a, 'm> DeserializeSeed<'a> for Name<'m> {
    type Value = Option<&'m Member>;

    fn deserialize<D: Deserializer<'a>>(self, name: D) -> Result<Self::Value, D::Error> {
        name.deserialize_str(self)
    }
}

impl<'m> Visitor<'_> for Name<'m> {
    type Value = Option<&'m Member>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.0.0.iter().find(|member| member.name == name))
    }
}

/// The value of a member that is wanted, or leads to one.
struct Wanted<'m, 'f, 'a> {
    member: &'m Member,
    found: &'f mut [Found<'a>],
}

impl<'a> Wanted<'_, '_, 'a> {
    fn is(self, what: Found<'a>) {
        self.member.forget(self.found);
        for place in &self.member.columns {
            self.found[*place] = what.clone();
        }
    }
}

impl<'a> DeserializeSeed<'a> for Wanted<'_, '_, 'a> {
    type Value = ();

    fn deserialize<D: Deserializer<'a>>(self, value: D) -> Result<(), D::Error> {
        value.deserialize_any(self)
    }
}

impl<'a> Visitor<'a> for Wanted<'_, '_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'a str) -> Result<(), E> {
        self.is(Found::Text(Cow::Borrowed(text)));
        Ok(())
    }

    // With escapes in it.
    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        self.is(Found::Text(Cow::Owned(text.to_owned())));
        Ok(())
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<(), E> {
        self.is(Found::Integer(number.into()));
        Ok(())
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<(), E> {
        self.is(Found::Integer(number.into()));
        Ok(())
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        self.is(Found::NoId);
        Ok(())
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        self.is(Found::NoId);
        Ok(())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.is(Found::Null);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut list: A) -> Result<(), A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        self.is(Found::NoId);
        Ok(())
    }

    fn visit_map<A: MapAccess<'a>>(self, object: A) -> Result<(), A::Error> {
        self.member.forget(self.found);
        self.member.columns.iter().for_each(|place| self.found[*place] = Found::NoId);
        Object { members: &self.member.inner, found: self.found }.visit_map(object)
    }
}

#[cfg(test)]
mod tests {
    use rtad_core::device::IdKind;

    use super::Found::{Absent, Integer, NoId, Null};
    use super::*;

    fn find<'a>(columns: &[&str], row: &'a str) -> Result<Vec<Found<'a>>, NoObject> {
        let column = |name: &&str| Column { name: (*name).to_owned(), kind: IdKind::Openid };
        let columns: Vec<_> = columns.iter().map(column).collect();
        let mut found = vec![NoId; columns.len()];
        Members::new(&columns).find(row.as_bytes(), &mut found).map(|()| found)
    }

    fn text(text: &str) -> Found<'_> {
        Found::Text(text.into())
    }

    #[test]
    fn members_are_found_by_name() {
        let columns = ["a", "b.c", r"b\.c", "b", "a"];
        for (row, expected) in [
            (
                r#"{"a":"1","b":{"c":"2"},"b.c":"3"}"#,
                [text("1"), text("2"), text("3"), NoId, text("1")],
            ),
            (r#" { "b" : "x" } "#, [Absent, Absent, Absent, text("x"), Absent]),
            (r#"{"a":null,"b":null}"#, [Null, Absent, Absent, Null, Null]),
            (r#"{"a":-7,"b":[{"c":1}]}"#, [Integer(-7), Absent, Absent, NoId, Integer(-7)]),
            (
                r#"{"a":18446744073709551615}"#,
                [Integer(u64::MAX.into()), Absent, Absent, Absent, Integer(u64::MAX.into())],
            ),
            (r#"{"a":1e3,"b":true}"#, [NoId, Absent, Absent, NoId, NoId]),
            (
                r#"{"a":"q\"A\n","x":{"a":"no","y":[[1,{}]]}}"#,
                [text("q\"A\n"), Absent, Absent, Absent, text("q\"A\n")],
            ),
            // The last of two counts, as a whole.
            (
                r#"{"a":"1","a":"2","b":{"c":"1"},"b":{}}"#,
                [text("2"), Absent, Absent, NoId, text("2")],
            ),
            (r#"{"b":{"c":"1"},"b":"2"}"#, [Absent, Absent, Absent, text("2"), Absent]),
            ("{}", [Absent, Absent, Absent, Absent, Absent]),
        ] {
            assert_eq!(find(&columns, row), Ok(expected.to_vec()), "{row}");
        }
    }

    #[test]
    fn what_is_no_object_is_none() {
        for row in [
            "[]",
            "\"a\"",
            "7",
            "null",
            "{",
            "{\"a\":}",
            "{\"a\":1,}",
            "{'a':1}",
            "{} {}",
            "{}x",
            "{\"a\":\"\0\"}",
            "{\"a\":\"\\ud800\"}",
        ] {
            assert_eq!(find(&["a"], row), Err(NoObject), "{row:?}");
        }
        let mut found = vec![Absent];
        let members = Members::new(&[Column { name: "a".to_owned(), kind: IdKind::Openid }]);
        assert_eq!(members.find(b"{\"a\":\"\xff\"}", &mut found), Err(NoObject));
        // Also what is passed over may nest as deep as a row can.
        let deep = |open: &str, close: &str| {
            format!("{{\"x\":{}1{}}}", open.repeat(12_000), close.repeat(12_000))
        };
        assert_eq!(find(&["a"], &deep("[", "]")), Ok(vec![Absent]));
        assert_eq!(find(&["a"], &deep("{\"a\":", "}")), Ok(vec![Absent]));
        assert_eq!(find(&["x"], &deep("[", "]")), Ok(vec![NoId]));
        assert_eq!(find(&["x"], &deep("[", "")), Err(NoObject));
    }
}
