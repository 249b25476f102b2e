//! NDJSON input: one JSON object per line, of which only the selected members are read.
//!
//! Runs in the parser threads, on the blocks of `lines.rs`. Unselected values are skipped without
//! allocation or recursion, so deep nesting costs no more than its bytes.
//!
//! An id is a string, or an integer, which is read as its digits. The last of several members of
//! one name counts. A list in place of a row, an id or an object around it is malformed, once per
//! element: it may hold many ids. So is any other value around an id, except null.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::layout::Column;
use super::member;

/// Value of a row in a column.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum RowValue<'a> {
    /// There is no such member, or an outer one is absent or null.
    #[default]
    Absent,
    Null,
    Text(Cow<'a, str>),
    Integer(i128),
    /// A number with a fraction or an exponent.
    Fraction,
    /// A boolean or an object; or an outer member is neither null, an object nor a list.
    NotAnId,
    /// It or an outer member is a list of so many elements.
    List(u64),
}

/// The line is not exactly one JSON object.
#[derive(Debug, PartialEq, Eq)]
pub struct NotAnObject;

/// Number of elements of a row that is a list; 1 for any other row.
pub fn elements(row: &[u8]) -> u64 {
    serde_json::from_slice::<Vec<IgnoredAny>>(row).map_or(1, |list| list.len().max(1) as u64)
}

/// Tree of the selected members, with the column indexes of each.
#[derive(Debug, Default)]
pub struct Members(Vec<Member>);

#[derive(Debug)]
struct Member {
    name: String,
    columns: Vec<usize>,
    inner: Members,
}

impl Members {
    pub fn new(columns: &[Column]) -> Self {
        let mut members = Self::default();
        for (index, column) in columns.iter().enumerate() {
            members.add(&member::path(&column.name), index);
        }
        members
    }

    fn add(&mut self, path: &[String], column: usize) {
        let [name, rest @ ..] = path else { return };
        let known = self
            .0
            .iter()
            .position(|member| member.name == *name)
            .unwrap_or_else(|| {
                self.0.push(Member {
                    name: name.clone(),
                    columns: Vec::new(),
                    inner: Self::default(),
                });
                self.0.len() - 1
            });
        match rest {
            [] => self.0[known].columns.push(column),
            rest => self.0[known].inner.add(rest, column),
        }
    }

    /// Fills `found` with the value of each column. An error leaves its contents undefined.
    pub fn find<'a>(&self, row: &'a [u8], found: &mut [RowValue<'a>]) -> Result<(), NotAnObject> {
        found.iter_mut().for_each(|found| *found = RowValue::Absent);
        let mut json = serde_json::Deserializer::from_slice(row);
        json.deserialize_map(SelectedMembers {
            members: self,
            found,
        })
        .and_then(|()| json.end())
        .map_err(|_| NotAnObject)
    }

    /// Sets all columns, also those of an earlier member of the same name.
    fn fill<'a>(&self, found: &mut [RowValue<'a>], value: &RowValue<'a>) {
        for member in &self.0 {
            member
                .columns
                .iter()
                .for_each(|column| found[*column] = value.clone());
            member.inner.fill(found, value);
        }
    }
}

/// Visitor of an object with selected members.
struct SelectedMembers<'m, 'f, 'a> {
    members: &'m Members,
    found: &'f mut [RowValue<'a>],
}

impl<'a> Visitor<'a> for SelectedMembers<'_, '_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut object: A) -> Result<(), A::Error> {
        while let Some(member) = object.next_key_seed(Name(self.members))? {
            match member {
                Some(member) => object.next_value_seed(MemberValue {
                    member,
                    found: self.found,
                })?,
                None => drop(object.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

/// Visitor of a member's name: the selected member, if any.
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

/// Visitor of the value of a selected member, or of an outer one.
struct MemberValue<'m, 'f, 'a> {
    member: &'m Member,
    found: &'f mut [RowValue<'a>],
}

impl<'a> MemberValue<'_, '_, 'a> {
    fn set(self, value: RowValue<'a>) {
        let inner = match &value {
            RowValue::Null => RowValue::Absent,
            RowValue::List(count) => RowValue::List(*count),
            _ => RowValue::NotAnId,
        };
        self.member.inner.fill(self.found, &inner);
        for column in &self.member.columns {
            self.found[*column] = value.clone();
        }
    }
}

impl<'a> DeserializeSeed<'a> for MemberValue<'_, '_, 'a> {
    type Value = ();

    fn deserialize<D: Deserializer<'a>>(self, value: D) -> Result<(), D::Error> {
        value.deserialize_any(self)
    }
}

impl<'a> Visitor<'a> for MemberValue<'_, '_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'a str) -> Result<(), E> {
        self.set(RowValue::Text(Cow::Borrowed(text)));
        Ok(())
    }

    // A string with escapes.
    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        self.set(RowValue::Text(Cow::Owned(text.to_owned())));
        Ok(())
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<(), E> {
        self.set(RowValue::Integer(number.into()));
        Ok(())
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<(), E> {
        self.set(RowValue::Integer(number.into()));
        Ok(())
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        self.set(RowValue::Fraction);
        Ok(())
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        self.set(RowValue::NotAnId);
        Ok(())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.set(RowValue::Null);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut list: A) -> Result<(), A::Error> {
        let mut count = 0;
        while list.next_element::<IgnoredAny>()?.is_some() {
            count += 1;
        }
        self.set(RowValue::List(count));
        Ok(())
    }

    fn visit_map<A: MapAccess<'a>>(self, object: A) -> Result<(), A::Error> {
        self.member.inner.fill(self.found, &RowValue::Absent);
        self.member
            .columns
            .iter()
            .for_each(|column| self.found[*column] = RowValue::NotAnId);
        SelectedMembers {
            members: &self.member.inner,
            found: self.found,
        }
        .visit_map(object)
    }
}

#[cfg(test)]
mod tests {
    use rtad_core::device::IdKind;

    use super::RowValue::{Absent, Fraction, Integer, List, NotAnId, Null};
    use super::*;

    fn find<'a>(columns: &[&str], row: &'a str) -> Result<Vec<RowValue<'a>>, NotAnObject> {
        let column = |name: &&str| Column {
            name: (*name).to_owned(),
            kinds: IdKind::Openid.into(),
        };
        let columns: Vec<_> = columns.iter().map(column).collect();
        let mut found = vec![NotAnId; columns.len()];
        Members::new(&columns)
            .find(row.as_bytes(), &mut found)
            .map(|()| found)
    }

    fn text(text: &str) -> RowValue<'_> {
        RowValue::Text(text.into())
    }

    #[test]
    fn members_are_found_by_name() {
        let columns = ["a", "b.c", r"b\.c", "b", "a"];
        for (row, expected) in [
            (
                r#"{"a":"1","b":{"c":"2"},"b.c":"3"}"#,
                [text("1"), text("2"), text("3"), NotAnId, text("1")],
            ),
            (
                r#" { "b" : "x" } "#,
                [Absent, NotAnId, Absent, text("x"), Absent],
            ),
            (r#"{"a":null,"b":null}"#, [Null, Absent, Absent, Null, Null]),
            (
                r#"{"a":-7,"b":[{"c":1}]}"#,
                [Integer(-7), List(1), Absent, List(1), Integer(-7)],
            ),
            (
                r#"{"b":[{},{}],"b":null}"#,
                [Absent, Absent, Absent, Null, Absent],
            ),
            (
                r#"{"a":18446744073709551615}"#,
                [
                    Integer(u64::MAX.into()),
                    Absent,
                    Absent,
                    Absent,
                    Integer(u64::MAX.into()),
                ],
            ),
            (
                r#"{"a":1e3,"b":true}"#,
                [Fraction, NotAnId, Absent, NotAnId, Fraction],
            ),
            (
                r#"{"a":"q\"A\n","x":{"a":"no","y":[[1,{}]]}}"#,
                [text("q\"A\n"), Absent, Absent, Absent, text("q\"A\n")],
            ),
            // The last of two counts and replaces all of the first.
            (
                r#"{"a":"1","a":"2","b":{"c":"1"},"b":{}}"#,
                [text("2"), Absent, Absent, NotAnId, text("2")],
            ),
            (
                r#"{"b":{"c":"1"},"b":"2"}"#,
                [Absent, NotAnId, Absent, text("2"), Absent],
            ),
            (
                r#"{"b":"2","b":{"c":"1"}}"#,
                [Absent, text("1"), Absent, NotAnId, Absent],
            ),
            ("{}", [Absent, Absent, Absent, Absent, Absent]),
        ] {
            assert_eq!(find(&columns, row), Ok(expected.to_vec()), "{row}");
        }
    }

    #[test]
    fn malformed_lines_are_rejected() {
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
            assert_eq!(find(&["a"], row), Err(NotAnObject), "{row:?}");
        }
        let mut found = vec![Absent];
        let members = Members::new(&[Column {
            name: "a".to_owned(),
            kinds: IdKind::Openid.into(),
        }]);
        assert_eq!(
            members.find(b"{\"a\":\"\xff\"}", &mut found),
            Err(NotAnObject)
        );
        // Skipped values may nest as deep as the row allows.
        let deep = |open: &str, close: &str| {
            format!("{{\"x\":{}1{}}}", open.repeat(12_000), close.repeat(12_000))
        };
        assert_eq!(find(&["a"], &deep("[", "]")), Ok(vec![Absent]));
        assert_eq!(find(&["a"], &deep("{\"a\":", "}")), Ok(vec![Absent]));
        assert_eq!(find(&["x"], &deep("[", "]")), Ok(vec![List(1)]));
        assert_eq!(find(&["x"], &deep("[", "")), Err(NotAnObject));
    }
}
