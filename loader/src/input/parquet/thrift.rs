//! Thrift's compact protocol, as far as a page's header and the outline of a schema need it.
//!
//! Reads from a slice and takes no memory, so nothing that the bytes say can make it take any. Nesting is bounded.

/// Deeper than anything that Parquet defines.
const MAX_DEPTH: u32 = 16;

/// What cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Broken {
    /// The bytes end too early; with more of them it may be readable.
    End,
    /// No bytes after these could make sense of them.
    Bad,
}

/// Types of fields, as they stand in the low half of a field's first byte.
pub(super) const TRUE: u8 = 1;
pub(super) const FALSE: u8 = 2;
const BYTE: u8 = 3;
const I16: u8 = 4;
const I32: u8 = 5;
const I64: u8 = 6;
const DOUBLE: u8 = 7;
const BINARY: u8 = 8;
pub(super) const LIST: u8 = 9;
const SET: u8 = 10;
const MAP: u8 = 11;
pub(super) const STRUCT: u8 = 12;
const UUID: u8 = 13;

/// Bytes that are being read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Compact<'a> {
    rest: &'a [u8],
    len: usize,
}

impl<'a> Compact<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, len: bytes.len() }
    }

    /// How many bytes were read.
    pub(super) const fn position(&self) -> usize {
        self.len - self.rest.len()
    }

    /// Reads a struct, handing each field's number and type to `field`, which reads or [skips](Self::skip) its value.
    pub(super) fn fields(
        &mut self,
        mut field: impl FnMut(&mut Self, i16, u8) -> Result<(), Broken>,
    ) -> Result<(), Broken> {
        let mut number = 0_i16;
        loop {
            let byte = self.byte()?;
            if byte == 0 {
                return Ok(());
            }
            number = match byte >> 4 {
                0 => i16::try_from(self.zigzag()?).map_err(|_| Broken::Bad)?,
                step => number.checked_add(step.into()).ok_or(Broken::Bad)?,
            };
            field(self, number, byte & 15)?;
        }
    }

    /// The beginning of a list: how many elements of which type follow.
    pub(super) fn list(&mut self) -> Result<(u64, u8), Broken> {
        let byte = self.byte()?;
        let size = match byte >> 4 {
            15 => self.varint()?,
            size => size.into(),
        };
        Ok((size, byte & 15))
    }

    /// A number of 32 bits.
    pub(super) fn i32(&mut self, kind: u8) -> Result<i32, Broken> {
        match kind {
            I32 => i32::try_from(self.zigzag()?).map_err(|_| Broken::Bad),
            _ => Err(Broken::Bad),
        }
    }

    /// Passes over a value.
    pub(super) fn skip(&mut self, kind: u8) -> Result<(), Broken> {
        self.skip_within(kind, MAX_DEPTH)
    }

    fn skip_within(&mut self, kind: u8, depth: u32) -> Result<(), Broken> {
        let depth = depth.checked_sub(1).ok_or(Broken::Bad)?;
        match kind {
            TRUE | FALSE => Ok(()),
            BYTE => self.take(1),
            I16 | I32 | I64 => self.varint().map(drop),
            DOUBLE => self.take(8),
            BINARY => {
                let len = self.varint()?;
                self.take(len)
            }
            LIST | SET => {
                let (size, kind) = self.list()?;
                (0..size).try_for_each(|_| self.skip_element(kind, depth))
            }
            MAP => {
                let size = self.varint()?;
                if size == 0 {
                    return Ok(());
                }
                let kinds = self.byte()?;
                (0..size).try_for_each(|_| {
                    self.skip_element(kinds >> 4, depth)?;
                    self.skip_element(kinds & 15, depth)
                })
            }
            STRUCT => self.fields(|compact, _, kind| compact.skip_within(kind, depth)),
            UUID => self.take(16),
            _ => Err(Broken::Bad),
        }
    }

    /// Of a truth value an element takes a byte, which a field has in its type.
    fn skip_element(&mut self, kind: u8, depth: u32) -> Result<(), Broken> {
        match kind {
            TRUE | FALSE => self.take(1),
            kind => self.skip_within(kind, depth),
        }
    }

    fn byte(&mut self) -> Result<u8, Broken> {
        let (byte, rest) = self.rest.split_first().ok_or(Broken::End)?;
        self.rest = rest;
        Ok(*byte)
    }

    fn take(&mut self, len: u64) -> Result<(), Broken> {
        let len = usize::try_from(len).map_err(|_| Broken::Bad)?;
        self.rest = self.rest.get(len..).ok_or(Broken::End)?;
        Ok(())
    }

    pub(super) fn varint(&mut self) -> Result<u64, Broken> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Broken::Bad)
    }

    pub(super) fn zigzag(&mut self) -> Result<i64, Broken> {
        let value = self.varint()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }
}
