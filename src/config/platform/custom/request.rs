//! `[platform.request]`: the fields of a custom platform's requests.

use std::collections::BTreeMap;

use rtad_config::values::filled;
use rtad_config::{Document, Location, Named, NamedList};
use rtad_core::device::IdField;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::path;
use crate::strategy::{Attribute, OS_WORDS};

/// `[platform.request]`
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(documented::DocumentedFieldsOpt))]
#[serde(default, deny_unknown_fields)]
pub struct RequestConfig {
    /// Field of the request id, which the response repeats.
    #[serde(deserialize_with = "path")]
    pub request_id: Option<Named>,
    /// Field of the requested strategies; unset = every strategy of the platform.
    #[serde(deserialize_with = "path")]
    pub strategies: Option<Named>,
    /// Separator of strategies in one value.
    #[serde(deserialize_with = "filled")]
    pub strategies_separator: Option<String>,
    /// Field that is true for a probe of the platform.
    #[serde(deserialize_with = "path")]
    pub ping: Option<Named>,
    /// Fields of device ids, by the kind of id. `ids`, `id_list` or both are required.
    #[serde(
        deserialize_with = "paths",
        serialize_with = "as_paths",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub ids: Vec<(IdField, Named)>,
    /// Fields of attributes that conditions read: `os`, `app`, `slot`, `region`, `request_type`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<Attribute, Named>,
    /// Mapping from the platform's values of `os` to operating systems; an enum's by number or
    /// name. Others are absent, and counted. Unset = the platform uses these words itself.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub os_values: BTreeMap<String, String>,
    /// List of ids that carry their kind, see `[platform.request.id_list]`.
    pub id_list: Option<IdListConfig>,
}

/// `[platform.request.id_list]`: a list of ids with their types.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(documented::DocumentedFieldsOpt))]
pub struct IdListConfig {
    /// Field of the list; unset = the other paths start at the top of the request.
    #[serde(default, deserialize_with = "path")]
    pub list: Option<Named>,
    /// Field of the id within a list entry.
    #[serde(deserialize_with = "path")]
    pub value: Named,
    /// Field of the type of id within a list entry.
    #[serde(rename = "type", deserialize_with = "path")]
    pub kind: Named,
    /// Field of a second type, such as the hash of the id, within a list entry.
    #[serde(default, deserialize_with = "path")]
    pub secure: Option<Named>,
    /// Mapping from a type, or from `type/secure` with a second type, to a kind of id.
    #[serde(deserialize_with = "kinds", serialize_with = "as_kinds")]
    pub kinds: Vec<(Named, IdField)>,
}

fn as_paths<S: Serializer>(ids: &[(IdField, Named)], serializer: S) -> Result<S::Ok, S::Error> {
    let mut paths: BTreeMap<&str, Vec<&Named>> = BTreeMap::new();
    for (field, named) in ids {
        paths.entry(field.as_str()).or_default().push(named);
    }
    serializer.collect_map(paths)
}

fn as_kinds<S: Serializer>(kinds: &[(Named, IdField)], serializer: S) -> Result<S::Ok, S::Error> {
    let kinds: BTreeMap<&str, &str> = kinds
        .iter()
        .map(|(named, field)| (named.text.as_str(), field.as_str()))
        .collect();
    serializer.collect_map(kinds)
}

/// A name of a field of ids, in place of a text.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct FieldName {
    name: String,
    field: IdField,
}

impl<'de> Deserialize<'de> for FieldName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        match IdField::named(&name) {
            Some(field) => Ok(Self { name, field }),
            None => Err(D::Error::custom(format!(
                "is not known; accepted: {}",
                fields()
            ))),
        }
    }
}

/// The field that a type of id stands for, and the location of that entry.
struct FieldOfType {
    location: Location,
    field: IdField,
}

impl<'de> Deserialize<'de> for FieldOfType {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let named = Named::deserialize(deserializer)?;
        match IdField::named(&named.text) {
            Some(field) => Ok(Self {
                location: named.location,
                field,
            }),
            None => Err(D::Error::custom(fields())),
        }
    }
}

/// The names of all fields, for messages.
fn fields() -> String {
    format!(
        "one of {}",
        IdField::ALL.map(|field| field.as_str()).join(", ")
    )
}

fn paths<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<(IdField, Named)>, D::Error> {
    let fields = BTreeMap::<FieldName, NamedList>::deserialize(deserializer)?;
    let mut ids = Vec::new();
    for (name, NamedList(paths)) in fields {
        for path in paths {
            ids.push((name.field, path));
        }
    }
    Ok(ids)
}

fn kinds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<(Named, IdField)>, D::Error> {
    let kinds = BTreeMap::<String, FieldOfType>::deserialize(deserializer)?;
    let mut named = Vec::new();
    for (text, FieldOfType { location, field }) in kinds {
        named.push((Named { location, text }, field));
    }
    Ok(named)
}

impl RequestConfig {
    pub(in crate::config::platform) fn check(&self, d: &mut Document<'_>, table: &str) {
        if self.strategies_separator.is_some() && self.strategies.is_none() {
            let key = format!("{table}.strategies_separator");
            d.mistake(
                &key,
                "is given without strategies",
                "both, or strategies alone",
            );
        }

        for (value, word) in &self.os_values {
            if !OS_WORDS.contains(&word.as_str()) {
                let key = format!("{table}.os_values");
                d.reject_entry(&key, value, &format!("one of {}", OS_WORDS.join(", ")));
            }
        }
        if !self.os_values.is_empty() && !self.attributes.contains_key(&Attribute::Os) {
            let key = format!("{table}.os_values");
            d.mistake(
                &key,
                "is given without a field of os",
                "attributes with os too",
            );
        }

        if self.ids.is_empty() && self.id_list.is_none() {
            d.mistake(table, "maps no id", "ids or id_list");
        }
        let kinds = format!("{table}.id_list.kinds");
        let has_no_kind = self
            .id_list
            .as_ref()
            .is_some_and(|list| list.kinds.is_empty());
        if has_no_kind {
            d.mistake(
                &kinds,
                "is empty",
                "types of id, and the ids they stand for",
            );
        }
    }
}
