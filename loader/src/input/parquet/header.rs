//! What stands before a page, and how deep a schema nests.

use parquet::basic::Encoding;

use super::thrift::{Broken, Compact, LIST, STRUCT, TRUE};

/// The header of one page; what is written of a kind of page that it is not does not count.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) kind: i32,
    /// Before and after compression.
    pub(super) text_bytes: i32,
    pub(super) stored_bytes: i32,
    pub(super) crc: Option<i32>,
    pub(super) data: Option<DataV1>,
    pub(super) dictionary: Option<Dictionary>,
    pub(super) data_v2: Option<DataV2>,
}

pub(super) const DATA: i32 = 0;
pub(super) const DICTIONARY: i32 = 2;
pub(super) const DATA_V2: i32 = 3;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct DataV1 {
    pub(super) values: i32,
    pub(super) encoding: i32,
    pub(super) definition_levels: i32,
    pub(super) repetition_levels: i32,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Dictionary {
    pub(super) values: i32,
    pub(super) encoding: i32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DataV2 {
    pub(super) values: i32,
    pub(super) nulls: i32,
    pub(super) rows: i32,
    pub(super) encoding: i32,
    pub(super) definition_bytes: i32,
    pub(super) repetition_bytes: i32,
    pub(super) is_compressed: bool,
}

impl Header {
    /// Reads a header, and says how long it is.
    pub(super) fn read(bytes: &[u8]) -> Result<(Self, usize), Broken> {
        let (mut compact, mut header) = (Compact::new(bytes), Self::default());
        compact.fields(|compact, number, kind| {
            match number {
                1 => header.kind = compact.i32(kind)?,
                2 => header.text_bytes = compact.i32(kind)?,
                3 => header.stored_bytes = compact.i32(kind)?,
                4 => header.crc = Some(compact.i32(kind)?),
                5 => header.data = Some(data_v1(compact, kind)?),
                7 => header.dictionary = Some(dictionary(compact, kind)?),
                8 => header.data_v2 = Some(data_v2(compact, kind)?),
                _ => compact.skip(kind)?,
            }
            Ok(())
        })?;
        Ok((header, compact.position()))
    }
}

fn data_v1(compact: &mut Compact<'_>, kind: u8) -> Result<DataV1, Broken> {
    is_struct(kind)?;
    let mut page = DataV1::default();
    compact.fields(|compact, number, kind| {
        match number {
            1 => page.values = compact.i32(kind)?,
            2 => page.encoding = compact.i32(kind)?,
            3 => page.definition_levels = compact.i32(kind)?,
            4 => page.repetition_levels = compact.i32(kind)?,
            _ => compact.skip(kind)?,
        }
        Ok(())
    })?;
    Ok(page)
}

fn dictionary(compact: &mut Compact<'_>, kind: u8) -> Result<Dictionary, Broken> {
    is_struct(kind)?;
    let mut page = Dictionary::default();
    compact.fields(|compact, number, kind| {
        match number {
            1 => page.values = compact.i32(kind)?,
            2 => page.encoding = compact.i32(kind)?,
            _ => compact.skip(kind)?,
        }
        Ok(())
    })?;
    Ok(page)
}

fn data_v2(compact: &mut Compact<'_>, kind: u8) -> Result<DataV2, Broken> {
    is_struct(kind)?;
    let mut page = DataV2 {
        values: 0,
        nulls: 0,
        rows: 0,
        encoding: 0,
        definition_bytes: 0,
        repetition_bytes: 0,
        is_compressed: true,
    };
    compact.fields(|compact, number, kind| {
        match number {
            1 => page.values = compact.i32(kind)?,
            2 => page.nulls = compact.i32(kind)?,
            3 => page.rows = compact.i32(kind)?,
            4 => page.encoding = compact.i32(kind)?,
            5 => page.definition_bytes = compact.i32(kind)?,
            6 => page.repetition_bytes = compact.i32(kind)?,
            7 => page.is_compressed = kind == TRUE,
            _ => compact.skip(kind)?,
        }
        Ok(())
    })?;
    Ok(page)
}

fn is_struct(kind: u8) -> Result<(), Broken> {
    if kind == STRUCT { Ok(()) } else { Err(Broken::Bad) }
}

/// An encoding by its number in the format.
pub(super) fn encoding(number: i32) -> Option<Encoding> {
    #[expect(deprecated, reason = "old files have levels in it")]
    Some(match number {
        0 => Encoding::PLAIN,
        2 => Encoding::PLAIN_DICTIONARY,
        3 => Encoding::RLE,
        4 => Encoding::BIT_PACKED,
        5 => Encoding::DELTA_BINARY_PACKED,
        6 => Encoding::DELTA_LENGTH_BYTE_ARRAY,
        7 => Encoding::DELTA_BYTE_ARRAY,
        8 => Encoding::RLE_DICTIONARY,
        9 => Encoding::BYTE_STREAM_SPLIT,
        _ => return None,
    })
}

/// How deep the schema nests in a file's metadata: whoever reads it recurses so far. Groups have as many members as there are.
pub(super) fn schema_depth(metadata: &[u8]) -> Result<usize, Broken> {
    let mut deepest = 0;
    Compact::new(metadata).fields(|compact, number, kind| {
        if number != 2 {
            return compact.skip(kind);
        }
        // How many children each group on the way still has.
        let mut open: Vec<i32> = Vec::new();
        let (elements, element_kind) = compact.list()?;
        if kind != LIST || element_kind != STRUCT {
            return Err(Broken::Bad);
        }
        let mut promised = 1;
        for _ in 0..elements {
            let mut children = 0;
            compact.fields(|compact, number, kind| match number {
                5 => compact.i32(kind).map(|number| children = number),
                _ => compact.skip(kind),
            })?;
            // Whoever reads it takes memory for as many as a group says that it has.
            promised += u64::try_from(children).map_err(|_| Broken::Bad)?;
            if promised > elements {
                return Err(Broken::Bad);
            }
            if let Some(left) = open.last_mut() {
                *left -= 1;
            }
            if children > 0 {
                open.push(children);
                deepest = deepest.max(open.len());
            }
            while open.last() == Some(&0) {
                open.pop();
            }
        }
        Ok(())
    })?;
    Ok(deepest)
}
