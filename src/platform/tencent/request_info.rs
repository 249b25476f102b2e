//! `RequestInfo` with a closed enum, as proto2 defines it and the platform's own decoder reads it.

use bytes::{Buf, BufMut};
use prost::encoding::{DecodeContext, WireType, int32, skip_field};
use prost::{DecodeError, Message};

use super::RequestType;

/// The kind of request. A value that [`RequestType`] lacks is skipped: it neither replaces an
/// earlier one nor means 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct RequestInfo {
    /// A [`RequestType`].
    pub request_type: Option<i32>,
}

/// Number of `request_type`.
const REQUEST_TYPE: u32 = 1;

impl RequestInfo {
    /// The type; normal if it is absent.
    #[inline]
    pub fn request_type(&self) -> RequestType {
        self.request_type.and_then(|number| number.try_into().ok()).unwrap_or_default()
    }
}

impl Message for RequestInfo {
    fn encode_raw(&self, buffer: &mut impl BufMut) {
        if let Some(number) = &self.request_type {
            int32::encode(REQUEST_TYPE, number, buffer);
        }
    }

    fn merge_field(
        &mut self,
        field: u32,
        wire: WireType,
        buffer: &mut impl Buf,
        context: DecodeContext,
    ) -> Result<(), DecodeError> {
        if field != REQUEST_TYPE {
            return skip_field(wire, field, buffer, context);
        }
        let mut number = 0;
        int32::merge(wire, &mut number, buffer, context)?;
        if RequestType::try_from(number).is_ok() {
            self.request_type = Some(number);
        }
        Ok(())
    }

    fn encoded_len(&self) -> usize {
        self.request_type.map_or(0, |number| int32::encoded_len(REQUEST_TYPE, &number))
    }

    fn clear(&mut self) {
        *self = Self::default();
    }
}
