//! The bytes of a Tencent request and of its answer, without prost's messages: prost would share
//! each field by a reference count, and move messages of a kilobyte.
//!
//! A request's fields are borrowed from the body. As in the platform's own decoder, the last value
//! of a field wins, devices are merged, and an unknown value of an enum does not replace a known
//! one. The tests compare it with prost's decoder. An answer's values and tags are encoded when the
//! platform is built.

use bytes::Bytes;
use prost::encoding::{
    DecodeContext, WireType, check_wire_type, decode_key, decode_varint, encoded_len_varint, int32,
    skip_field,
};
use prost::{DecodeError, Message as _};

use super::RequestType;
use super::device::{CachedDeviceIdType, Os};
use super::wire::rta_response::TargetInfo;
use crate::strategy::{BidValue, Tag, ValueKey};

/// `RtaRequest`
#[derive(Default)]
pub struct Message<'a> {
    pub id: Option<&'a [u8]>,
    pub is_ping: bool,
    pub is_test: bool,
    pub device: Device<'a>,
    pub request_type: RequestType,
    pub ads: Vec<Ad<'a>>,
}

/// `Device`
#[derive(Default)]
pub struct Device<'a> {
    pub os: Option<i32>,
    pub idfa_md5sum: Option<&'a [u8]>,
    pub imei_md5sum: Option<&'a [u8]>,
    pub android_id_md5sum: Option<&'a [u8]>,
    pub mac_md5sum: Option<&'a [u8]>,
    pub oaid_md5sum: Option<&'a [u8]>,
    pub oaid: Option<&'a [u8]>,
    pub doubtful_ids: Vec<i32>,
    pub cached_kind: Option<i32>,
    pub qaids: Vec<Qaid<'a>>,
    pub openids: Vec<Option<&'a [u8]>>,
}

/// `Device.QaidInfo`
#[derive(Default)]
pub struct Qaid<'a> {
    pub qaid: Option<&'a [u8]>,
    pub qaid_md5sum: Option<&'a [u8]>,
}

/// `RtaRequest.AdInfo`
#[derive(Default)]
pub struct Ad<'a> {
    pub adgroup_id: Option<u64>,
    pub out_target_id: Option<&'a [u8]>,
}

impl<'a> Message<'a> {
    pub fn merge(&mut self, body: &'a [u8]) -> Result<(), DecodeError> {
        fields(body, |field| {
            match field.number {
                1 => self.id = Some(field.bytes()?),
                2 => self.is_ping = field.varint()? != 0,
                3 => self.is_test = field.varint()? != 0,
                5 => self.device.merge(field.bytes()?)?,
                8 => self.merge_info(field.bytes()?)?,
                11 => self.ads.push(Ad::decode(field.bytes()?)?),
                _ => field.skip()?,
            }
            Ok(())
        })
    }

    fn merge_info(&mut self, info: &[u8]) -> Result<(), DecodeError> {
        fields(info, |field| {
            if field.number != 1 {
                return field.skip();
            }
            if let Ok(known) = RequestType::try_from(number(field)?) {
                self.request_type = known;
            }
            Ok(())
        })
    }
}

impl<'a> Device<'a> {
    fn merge(&mut self, device: &'a [u8]) -> Result<(), DecodeError> {
        fields(device, |field| {
            match field.number {
                1 => take_enum::<Os>(&mut self.os, number(field)?),
                2 => self.idfa_md5sum = Some(field.bytes()?),
                3 => self.imei_md5sum = Some(field.bytes()?),
                4 => self.android_id_md5sum = Some(field.bytes()?),
                5 => self.mac_md5sum = Some(field.bytes()?),
                6 => self.oaid_md5sum = Some(field.bytes()?),
                8 => self.oaid = Some(field.bytes()?),
                9 => {
                    let ProtoField { wire, rest, .. } = field;
                    let doubtful = &mut self.doubtful_ids;
                    int32::merge_repeated(wire, doubtful, rest, DecodeContext::default())?;
                }
                10 => take_enum::<CachedDeviceIdType>(&mut self.cached_kind, number(field)?),
                13 => self.qaids.push(Qaid::decode(field.bytes()?)?),
                14 => self.openids.push(openid(field.bytes()?)?),
                _ => field.skip()?,
            }

            Ok(())
        })
    }
}

impl<'a> Qaid<'a> {
    fn decode(info: &'a [u8]) -> Result<Self, DecodeError> {
        let mut qaid = Self::default();
        fields(info, |field| {
            match field.number {
                2 => qaid.qaid = Some(field.bytes()?),
                4 => qaid.qaid_md5sum = Some(field.bytes()?),
                _ => field.skip()?,
            }
            Ok(())
        })?;
        Ok(qaid)
    }
}

impl<'a> Ad<'a> {
    fn decode(info: &'a [u8]) -> Result<Self, DecodeError> {
        let mut ad = Self::default();
        fields(info, |field| {
            match field.number {
                1 => ad.adgroup_id = Some(field.varint()?),
                5 => ad.out_target_id = Some(field.bytes()?),
                _ => field.skip()?,
            }
            Ok(())
        })?;
        Ok(ad)
    }
}

/// The `openid` of a `Device.WxOpenid`.
fn openid(info: &[u8]) -> Result<Option<&[u8]>, DecodeError> {
    let mut openid = None;
    fields(info, |field| {
        match field.number {
            2 => openid = Some(field.bytes()?),
            _ => field.skip()?,
        }
        Ok(())
    })?;
    Ok(openid)
}

/// Takes a value of an enum of proto2: an unknown one does not replace a known one.
fn take_enum<E: TryFrom<i32>>(kept: &mut Option<i32>, number: i32) {
    if kept.is_none() || E::try_from(number).is_ok() {
        *kept = Some(number);
    }
}

#[expect(clippy::cast_possible_truncation, reason = "defined by the format")]
fn number(field: ProtoField<'_, '_>) -> Result<i32, DecodeError> {
    Ok(field.varint()? as i32)
}

/// A field whose content is not taken yet.
pub struct ProtoField<'r, 'a> {
    pub number: u32,
    pub wire: WireType,
    /// The message from the field's content on.
    pub rest: &'r mut &'a [u8],
}

/// Calls `take` with each field of a message. It takes the content of the field, or skips it.
#[inline]
pub fn fields<'a>(
    mut message: &'a [u8],
    mut take: impl FnMut(ProtoField<'_, 'a>) -> Result<(), DecodeError>,
) -> Result<(), DecodeError> {
    while !message.is_empty() {
        let (number, wire) = decode_key(&mut message)?;
        take(ProtoField {
            number,
            wire,
            rest: &mut message,
        })?;
    }
    Ok(())
}

impl<'a> ProtoField<'_, 'a> {
    /// Skips the content, of any wire type.
    #[inline]
    pub fn skip(self) -> Result<(), DecodeError> {
        skip_field(self.wire, self.number, self.rest, DecodeContext::default())
    }

    /// Takes a text, bytes or a message.
    #[inline]
    pub fn bytes(self) -> Result<&'a [u8], DecodeError> {
        check_wire_type(WireType::LengthDelimited, self.wire)?;
        let from = *self.rest;
        let length = decode_varint(self.rest)?;

        let parts = usize::try_from(length)
            .ok()
            .and_then(|at| self.rest.split_at_checked(at));
        let Some((content, rest)) = parts else {
            // The error for a length beyond the message.
            return skip_field(
                self.wire,
                self.number,
                &mut { from },
                DecodeContext::default(),
            )
            .map(|()| Default::default());
        };
        *self.rest = rest;
        Ok(content)
    }

    /// Takes a number that is a varint.
    #[inline]
    pub fn varint(self) -> Result<u64, DecodeError> {
        check_wire_type(WireType::Varint, self.wire)?;
        decode_varint(self.rest)
    }
}

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
