//! `[platform.request]`: where things stand in a custom platform's requests.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Document, PATH, SEPARATOR, Section, not_empty, optional, required, text};
use crate::platform::IdField;
use crate::platform::custom::{IdListMapping, Named, Place, RequestMapping};

/// `[platform.request]`
#[derive(Debug, Clone, Serialize)]
pub(super) struct RequestConfig {
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    strategies: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    strategies_separator: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ping: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    ids: BTreeMap<&'static str, Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id_list: Option<IdListConfig>,
}

/// `[platform.request.id_list]`
#[derive(Debug, Clone, Serialize)]
struct IdListConfig {
    #[serde(skip_serializing_if = "Option::is_none")]
    list: Option<String>,
    value: String,
    #[serde(rename = "type")]
    kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    secure: Option<String>,
    kinds: BTreeMap<String, &'static str>,
}

pub(super) fn read(d: &mut Document<'_>, mut section: Section) -> Option<(RequestConfig, RequestMapping)> {
    let request_id = optional(d, &mut section, "request_id", PATH);
    let strategies = optional(d, &mut section, "strategies", PATH);
    let strategies_separator = section.read(d, "strategies_separator", SEPARATOR, not_empty);
    if strategies_separator.is_some() && !section.had("strategies") {
        let key = format!("{}.strategies_separator", section.path());
        d.mistake(section.line(), &key, "is given without strategies", "both, or strategies alone");
    }
    let ping = optional(d, &mut section, "ping", PATH);
    let fields = IdField::ALL.map(|field| field.as_str()).join(", ");
    let accepted = format!("a path or a list of paths for each of {fields}");
    let ids =
        section.section(d, "ids", &accepted).map_or_else(Vec::new, |table| read_ids(d, table, &accepted));
    let example =
        "{ list = \"dids\", value = \"did\", type = \"type\", kinds = { \"imei\" = \"imei_md5\" } }";
    let id_list = section.section(d, "id_list", example);
    let had_list = id_list.is_some();
    let id_list = id_list.map(|table| read_list(d, table, &fields));
    if ids.is_empty() && !section.had("ids") && !section.had("id_list") {
        d.mistake(section.line(), section.path(), "maps no id", "ids or id_list");
    }
    section.finish(d);
    let id_list = id_list.flatten();
    if had_list && id_list.is_none() {
        return None;
    }
    let mut written: BTreeMap<&'static str, Vec<String>> = BTreeMap::new();
    for (field, named) in &ids {
        written.entry(IdField::ALL[*field].as_str()).or_default().push(named.text.clone());
    }
    let config = RequestConfig {
        request_id: text(request_id.as_ref()),
        strategies: text(strategies.as_ref()),
        strategies_separator: strategies_separator.clone(),
        ping: text(ping.as_ref()),
        ids: written,
        id_list: id_list.as_ref().map(IdListConfig::of),
    };
    Some((config, RequestMapping { request_id, strategies, strategies_separator, ping, ids, id_list }))
}

fn read_ids(d: &mut Document<'_>, table: Section, accepted: &str) -> Vec<(usize, Named)> {
    let path = table.path().to_owned();
    let mut ids = Vec::new();
    for keyed in table.read_lists(d, accepted) {
        let place = Place { line: Some(keyed.line), key: format!("{path}.{}", keyed.key) };
        match IdField::named(&keyed.key) {
            Some(field) => {
                ids.extend(
                    keyed.values.into_iter().map(|text| (field, Named { place: place.clone(), text })),
                );
            }
            None => d.mistake(place.line, &place.key, "is not known", accepted),
        }
    }
    ids
}

fn read_list(d: &mut Document<'_>, mut section: Section, fields: &str) -> Option<IdListMapping> {
    const RELATIVE: &str = "a path of field names, from the list on";
    let list = optional(d, &mut section, "list", PATH);
    let value = required(d, &mut section, "value", RELATIVE);
    let kind = required(d, &mut section, "type", RELATIVE);
    let secure = optional(d, &mut section, "secure", RELATIVE);
    let accepted =
        format!("{{ \"type\" = \"id\" }} or {{ \"type/secure\" = \"id\" }} with an id of {fields}");
    let table = section.section(d, "kinds", &accepted);
    if !section.had("kinds") {
        d.mistake(section.line(), &format!("{}.kinds", section.path()), "is missing", &accepted);
    }
    section.finish(d);
    let table = table?;
    let path = table.path().to_owned();
    let mut kinds = Vec::new();
    for keyed in table.read_lists(d, &accepted) {
        let place = Place { line: Some(keyed.line), key: path.clone() };
        match keyed.values.as_slice() {
            [id] if IdField::named(id).is_some() => {
                kinds.extend(IdField::named(id).map(|field| (Named { place, text: keyed.key }, field)));
            }
            [] => {}
            ids => {
                let found = format!("has {:?} = {:?}", keyed.key, ids.join(", "));
                d.mistake(place.line, &place.key, &found, &accepted);
            }
        }
    }
    Some(IdListMapping { list, value: value?, kind: kind?, secure, kinds })
}

impl IdListConfig {
    fn of(mapping: &IdListMapping) -> Self {
        let kind = |(named, field): &(Named, usize)| (named.text.clone(), IdField::ALL[*field].as_str());
        Self {
            list: text(mapping.list.as_ref()),
            value: mapping.value.text.clone(),
            kind: mapping.kind.text.clone(),
            secure: text(mapping.secure.as_ref()),
            kinds: mapping.kinds.iter().map(kind).collect(),
        }
    }
}
