//! Decoder of requests: the fields that rtad reads, borrowed from the body.
//!
//! As in the platform's own decoder, the last value of a field wins, devices are merged, and an
//! unknown value of an enum does not replace a known one. The tests compare it with prost's
//! decoder.

use prost::DecodeError;
use prost::encoding::{DecodeContext, int32};

use super::RequestType;
use super::device::{CachedDeviceIdType, Os};
use crate::platform::fields::{ProtoField, fields};

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
