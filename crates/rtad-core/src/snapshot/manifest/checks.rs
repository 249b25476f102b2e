//! Checks of a manifest's fields against each other.

use super::super::chunk::{file_prefix_bytes, least_body_bytes};
use super::super::json::ManifestError;
use super::super::lineage::BuildReport;
use super::{FillRatio, FilterFields, ManifestFields};
use crate::device::SHARDS;
use crate::filter::FilterKind;

/// Checks that the figures are those of the kind. Returns the fill, zeros for ribbon filters.
pub fn check_figures(kind: FilterKind, fields: &FilterFields) -> Result<FillRatio, ManifestError> {
    let is_ribbon = kind == FilterKind::Ribbon;
    for (field, is_present, is_expected) in [
        ("filter.fill_ratio", fields.fill_ratio.is_some(), !is_ribbon),
        (
            "filter.diverted_keys",
            fields.diverted_keys.is_some(),
            is_ribbon,
        ),
        (
            "filter.listed_keys",
            fields.listed_keys.is_some(),
            is_ribbon,
        ),
    ] {
        if is_present != is_expected {
            let word = |is_present| if is_present { "present" } else { "missing" };
            let expected = format!("{} for kind {}", word(is_expected), kind.as_str());
            return Err(ManifestError::field(field, word(is_present), expected));
        }
    }

    Ok(fields.fill_ratio.unwrap_or(FillRatio {
        min: 0.0,
        mean: 0.0,
        max: 0.0,
    }))
}

/// Checks the comparison with earlier generations.
pub fn check_build(build: &BuildReport) -> Result<(), ManifestError> {
    if let Some(overlap) = build.overlap
        && !(0.0..=1.0).contains(&overlap)
    {
        return Err(ManifestError::field("build.overlap", overlap, "0 to 1"));
    }
    if build.recent_keys.len() > BuildReport::MAX_RECENT {
        return Err(ManifestError::field(
            "build.recent_keys",
            build.recent_keys.len(),
            format!("at most {}", BuildReport::MAX_RECENT),
        ));
    }
    Ok(())
}

/// Checks that chunks are in shard order, do not overlap, are larger than their prefix, and sum up
/// to the totals.
pub fn check_chunks(fields: &ManifestFields, kind: FilterKind) -> Result<(), ManifestError> {
    let mut next_shard = 0;
    // u128 cannot overflow here; a saturated u64 could match a wrong total.
    let mut keys = 0_u128;
    let mut size_bytes = 0_u128;
    for (index, chunk) in fields.chunks.iter().enumerate() {
        let field = |name: &str| format!("chunks[{index}].{name}");
        let first = u64::from(chunk.first_shard);
        let end = first + u64::from(chunk.shard_count);
        if first < next_shard || first >= SHARDS as u64 {
            let expected = format!("{next_shard} to {}", SHARDS - 1);
            return Err(ManifestError::field(field("first_shard"), first, expected));
        }
        if chunk.shard_count == 0 || end > SHARDS as u64 {
            let expected = format!("1 to {}", SHARDS as u64 - first);
            return Err(ManifestError::field(
                field("shard_count"),
                chunk.shard_count,
                expected,
            ));
        }
        if chunk.keys == 0 {
            return Err(ManifestError::field(field("keys"), 0, "at least 1"));
        }
        let least = file_prefix_bytes(kind, chunk.shard_count) + least_body_bytes(kind);
        if chunk.size_bytes < least {
            return Err(ManifestError::field(
                field("size_bytes"),
                chunk.size_bytes,
                format!("at least {least}"),
            ));
        }
        next_shard = end;
        keys += u128::from(chunk.keys);
        size_bytes += u128::from(chunk.size_bytes);
    }

    for (field, found, expected) in [
        ("keys", fields.keys, keys),
        ("size_bytes", fields.size_bytes, size_bytes),
    ] {
        if u128::from(found) != expected {
            return Err(ManifestError::field(
                field,
                found,
                format!("{expected}, the sum over its chunks"),
            ));
        }
    }

    Ok(())
}
