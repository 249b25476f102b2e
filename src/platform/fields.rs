//! Fields of a protobuf message, borrowed from its bytes: no copies and no reference counts.

use prost::DecodeError;
use prost::encoding::{
    DecodeContext, WireType, check_wire_type, decode_key, decode_varint, skip_field,
};

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
