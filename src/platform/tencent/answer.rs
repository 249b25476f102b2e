//! The bytes of an answer: fields that are written without a message of prost, and values and tags
//! that are encoded when the platform is built.

use bytes::Bytes;
use prost::Message as _;
use prost::encoding::{WireType, encoded_len_varint};

use super::wire::rta_response::TargetInfo;
use crate::strategy::{BidValue, Tag, ValueKey};

/// A value of a strategy id.
#[derive(Debug)]
pub struct TargetValue {
    /// Its fields of a `TargetInfo`.
    pub target_info: Box<[u8]>,
    pub cpc_price: Option<u32>,
    pub cpa_price: Option<u32>,
}

impl TargetValue {
    /// `None` if the value has no number of this protocol. The config has checked the bounds.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "single precision on the wire"
    )]
    pub fn new(value: &BidValue) -> Option<Self> {
        let factor = value.get(ValueKey::Weight);
        let cpc_factor = value.get(ValueKey::CpcFactor);
        let info = TargetInfo {
            cpc_price: value.price(ValueKey::CpcPrice),
            cpa_price: value.price(ValueKey::CpaPrice),
            user_weight_factor: factor.map(|factor| factor as f32),
            cpc_factor: cpc_factor.map(|factor| factor as f32),
            ..TargetInfo::default()
        };
        if info == TargetInfo::default() {
            return None;
        }

        Some(Self {
            cpc_price: info.cpc_price,
            cpa_price: info.cpa_price,
            target_info: info.encode_to_vec().into(),
        })
    }
}

/// The tag of a bucket.
#[derive(Debug)]
pub struct TargetTag {
    /// Its fields of a `TargetInfo`.
    pub target_info: Box<[u8]>,
    pub tag: Tag,
}

impl TargetTag {
    pub fn new(tag: &Tag) -> Self {
        let Tag { text, number } = tag.clone();
        let info = TargetInfo {
            dsp_tag: number,
            dsp_tag_str: text.map(Bytes::from),
            ..TargetInfo::default()
        };
        Self {
            target_info: info.encode_to_vec().into(),
            tag: tag.clone(),
        }
    }
}

/// Parts of a `TargetInfo`.
pub struct TargetParts<'i> {
    pub id: &'i [u8],
    pub value: &'i [u8],
    pub tag: &'i [u8],
}

impl TargetParts<'_> {
    fn length(&self) -> usize {
        bytes_length(self.id) + self.value.len() + self.tag.len()
    }

    pub fn field_length(&self) -> usize {
        number_length(self.length() as u32) + self.length()
    }

    pub fn put(&self, out: &mut Vec<u8>) {
        // A message is its length, as a number, and its bytes.
        put_number(TARGET_INFOS, self.length() as u32, out);
        put_bytes(TARGET_ID, self.id, out);
        out.extend_from_slice(self.value);
        out.extend_from_slice(self.tag);
    }
}

/// Keys of fields of `RtaResponse`: number and wire type.
pub const REQUEST_ID: u8 = 1 << 3 | WireType::LengthDelimited as u8;
pub const CODE: u8 = 2 << 3 | WireType::Varint as u8;
pub const RESPONSE_CACHE_TIME: u8 = 7 << 3 | WireType::Varint as u8;
pub const OUT_TARGET_ID: u8 = 10 << 3 | WireType::LengthDelimited as u8;
const TARGET_INFOS: u8 = 12 << 3 | WireType::LengthDelimited as u8;
/// Key of the id in a `TargetInfo`.
const TARGET_ID: u8 = 1 << 3 | WireType::LengthDelimited as u8;

/// Bytes of a number with its key.
pub fn number_length(number: u32) -> usize {
    1 + encoded_len_varint(number.into())
}

/// Bytes of a text with its key.
pub fn bytes_length(bytes: &[u8]) -> usize {
    number_length(bytes.len() as u32) + bytes.len()
}

pub fn put_number(key: u8, mut number: u32, out: &mut Vec<u8>) {
    out.push(key);
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// At most the bytes of a body, whose length is within `u32`.
pub fn put_bytes(key: u8, bytes: &[u8], out: &mut Vec<u8>) {
    put_number(key, bytes.len() as u32, out);
    out.extend_from_slice(bytes);
}
