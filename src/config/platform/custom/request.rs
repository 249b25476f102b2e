//! `[platform.request]`: the fields of a custom platform's requests.

use std::collections::BTreeMap;

use rtad_core::device::IdField;
use serde::{Serialize, Serializer};

use crate::config::mistake::{Location, Named};
use crate::config::reader::{Document, Section, not_empty};

pub(super) const PATH: &str = "a path of field names, such as device.imei";
pub(super) const RELATIVE_PATH: &str = "a path of field names within a list entry";
pub(super) const SEPARATOR: &str = "a separator of strategies, such as a comma";

/// `[platform.request]`
#[derive(Debug, Clone, Default, Serialize)]
#[cfg_attr(test, derive(documented::DocumentedFieldsOpt))]
pub struct RequestConfig {
    /// Field of the request id, which the response repeats.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<Named>,
    /// Field of the requested strategies; unset = every strategy of the platform.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strategies: Option<Named>,
    /// Separator of strategies in one value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strategies_separator: Option<String>,
    /// Field that is true for a probe of the platform.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ping: Option<Named>,
    /// Fields of device ids, by the kind of id. `ids`, `id_list` or both are required.
    #[serde(serialize_with = "as_paths", skip_serializing_if = "Vec::is_empty")]
    pub ids: Vec<(usize, Named)>,
    /// List of ids that carry their kind, see `[platform.request.id_list]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id_list: Option<IdListConfig>,
}

/// `[platform.request.id_list]`: a list of ids with their types.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(test, derive(documented::DocumentedFieldsOpt))]
pub struct IdListConfig {
    /// Field of the list; unset = the other paths start at the top of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub list: Option<Named>,
    /// Field of the id within a list entry.
    pub value: Named,
    /// Field of the type of id within a list entry.
    #[serde(rename = "type")]
    pub kind: Named,
    /// Field of a second type, such as the hash of the id, within a list entry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secure: Option<Named>,
    /// Mapping from a type, or from `type/secure` with a second type, to a kind of id.
    #[serde(serialize_with = "as_kinds")]
    pub kinds: Vec<(Named, usize)>,
}

fn as_paths<S: Serializer>(ids: &[(usize, Named)], serializer: S) -> Result<S::Ok, S::Error> {
    let mut paths: BTreeMap<&str, Vec<&Named>> = BTreeMap::new();
    for (field, named) in ids {
        paths.entry(IdField::ALL[*field].as_str()).or_default().push(named);
    }
    serializer.collect_map(paths)
}

fn as_kinds<S: Serializer>(kinds: &[(Named, usize)], serializer: S) -> Result<S::Ok, S::Error> {
    let kinds: BTreeMap<&str, &str> = kinds
        .iter()
        .map(|(named, field)| (named.text.as_str(), IdField::ALL[*field].as_str()))
        .collect();
    serializer.collect_map(kinds)
}

pub(super) fn read(d: &mut Document<'_>, mut section: Section) -> Option<RequestConfig> {
    let request_id = section.read_named(d, "request_id", PATH);
    let strategies = section.read_named(d, "strategies", PATH);
    let strategies_separator = section.read(d, "strategies_separator", SEPARATOR, not_empty);
    if strategies_separator.is_some() && !section.had("strategies") {
        let key = format!("{}.strategies_separator", section.path());
        d.mistake(section.line(), &key, "is given without strategies", "both, or strategies alone");
    }
    let ping = section.read_named(d, "ping", PATH);
    let fields = IdField::ALL.map(|field| field.as_str()).join(", ");
    let accepted = format!("a path or a list of paths for each of {fields}");
    let ids = section.section(d, "ids", &accepted);
    let ids = ids.map_or_else(Vec::new, |table| read_ids(d, table, &accepted));
    let example = "{ list = \"dids\", value = \"did\", type = \"type\", kinds = { \"imei\" = \
        \"imei_md5\" } }";
    let id_list = section.section(d, "id_list", example);
    let had_list = id_list.is_some();
    let id_list = id_list.and_then(|table| read_list(d, table, &fields));
    if ids.is_empty() && !section.had("ids") && !section.had("id_list") {
        d.mistake(section.line(), section.path(), "maps no id", "ids or id_list");
    }
    section.finish(d);
    (id_list.is_some() == had_list).then_some(RequestConfig {
        request_id,
        strategies,
        strategies_separator,
        ping,
        ids,
        id_list,
    })
}

fn read_ids(d: &mut Document<'_>, table: Section, accepted: &str) -> Vec<(usize, Named)> {
    let path = table.path().to_owned();
    let mut ids = Vec::new();
    for keyed in table.read_lists(d, accepted) {
        let location = Location { line: Some(keyed.line), key: format!("{path}.{}", keyed.key) };
        match IdField::named(&keyed.key) {
            Some(field) => {
                let named = |text| (field, Named { location: location.clone(), text });
                ids.extend(keyed.values.into_iter().map(named));
            }
            None => d.mistake(location.line, &location.key, "is not known", accepted),
        }
    }
    ids
}

fn read_list(d: &mut Document<'_>, mut section: Section, fields: &str) -> Option<IdListConfig> {
    let list = section.read_named(d, "list", PATH);
    let value = section.read_required_named(d, "value", RELATIVE_PATH);
    let kind = section.read_required_named(d, "type", RELATIVE_PATH);
    let secure = section.read_named(d, "secure", RELATIVE_PATH);
    let accepted =
        format!("{{ \"type\" = \"id\" }} or {{ \"type/secure\" = \"id\" }} with an id of {fields}");
    let table = section.required_section(d, "kinds", &accepted);
    section.finish(d);
    let table = table?;
    let path = table.path().to_owned();
    let mut kinds = Vec::new();
    for keyed in table.read_lists(d, &accepted) {
        let location = Location { line: Some(keyed.line), key: path.clone() };
        let ids = keyed.values;
        let field = if let [id] = ids.as_slice() { IdField::named(id) } else { None };
        match field {
            Some(field) => kinds.push((Named { location, text: keyed.key }, field)),
            None if ids.is_empty() => {}
            None => {
                let found = format!("has {:?} = {:?}", keyed.key, ids.join(", "));
                d.mistake(location.line, &location.key, &found, &accepted);
            }
        }
    }
    Some(IdListConfig { list, value: value?, kind: kind?, secure, kinds })
}
