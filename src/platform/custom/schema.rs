//! The schema of bodies: an operator's `.proto`, compiled when the platform is built, or JSON
//! without a schema.
//!
//! Field names are resolved here once, not per request.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::Path;

use prost_reflect::{
    Cardinality, DescriptorPool, EnumDescriptor, FieldDescriptor, Kind, MessageDescriptor, Syntax,
};

use crate::config::{BodyFormat, Mistake, Named, PlatformConfig};
use crate::platform::read::canonical_integer_of;

/// Longest path, in fields.
const MAX_DEPTH: usize = 16;

/// The format of the bodies.
#[derive(Debug)]
pub enum Schema {
    /// Messages of a `.proto`.
    Protobuf {
        /// The request message.
        request: MessageDescriptor,
        /// The response message.
        response: MessageDescriptor,
    },
    /// JSON, or a form: any names.
    Json,
}

/// The type of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scalar {
    Int32,
    Int64,
    Uint32,
    Uint64,
    Sint32,
    Sint64,
    Fixed32,
    Fixed64,
    Sfixed32,
    Sfixed64,
    Bool,
    Enum,
    /// Only for [`End::Amount`].
    Float,
    /// Only for [`End::Amount`].
    Double,
    /// A string or bytes; in JSON, any value.
    Text,
}

impl Scalar {
    /// Smallest and largest whole number; `None` for other types.
    pub const fn range(self) -> Option<(i128, i128)> {
        Some(match self {
            Self::Int32 | Self::Sint32 | Self::Sfixed32 | Self::Enum => {
                (i32::MIN as i128, i32::MAX as i128)
            }
            Self::Int64 | Self::Sint64 | Self::Sfixed64 => (i64::MIN as i128, i64::MAX as i128),
            Self::Uint32 | Self::Fixed32 => (0, u32::MAX as i128),
            Self::Uint64 | Self::Fixed64 => (0, u64::MAX as i128),
            Self::Bool => (0, 1),
            Self::Float | Self::Double | Self::Text => return None,
        })
    }

    pub const fn is_number(self) -> bool {
        self.range().is_some()
    }

    const fn is_float(self) -> bool {
        matches!(self, Self::Float | Self::Double)
    }

    /// Whether it is a whole number in the range.
    #[expect(clippy::cast_possible_truncation, reason = "compared after the cast")]
    fn holds_whole(self, number: f64) -> bool {
        number.fract() == 0.0 && self.holds(number as i128)
    }

    pub fn holds(self, number: i128) -> bool {
        self.range()
            .is_none_or(|(least, greatest)| (least..=greatest).contains(&number))
    }
}

/// One field of a path.
#[derive(Debug)]
pub struct PathStep {
    pub name: String,
    /// 0 in JSON.
    pub number: u32,
    /// Whether it is repeated; unknown in JSON.
    pub is_list: bool,
    /// Whether it is written packed.
    pub is_packed: bool,
    /// Type of the value; `None` for a message, as for every step but the last.
    pub scalar: Option<Scalar>,
    /// The enum, if it is one.
    pub names: Option<EnumDescriptor>,
    /// Whether proto2 requires it.
    pub is_required: bool,
    /// Whether an absent number means 0.
    pub is_zero_when_absent: bool,
    /// The message, if it is one.
    pub message: Option<MessageDescriptor>,
    /// `Device.imei`, for mistakes.
    label: String,
}

/// Compiles a `.proto`. Imports are relative to its folder; Google's well-known files are built in.
///
/// # Errors
///
/// The compiler's message, with file, line and column if known.
pub fn compile(path: &Path) -> Result<DescriptorPool, String> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let name = path
        .file_name()
        .ok_or_else(|| "is not a file name".to_owned())?;

    let compiled = protox::Compiler::new([folder]).and_then(|mut compiler| {
        compiler
            .include_imports(true)
            .open_file(folder.join(name))?;
        Ok(compiler.file_descriptor_set())
    });
    let files = compiled.map_err(|error| {
        if error.is_file_not_found() && error.file().is_none() {
            "there is no such file".to_owned()
        } else {
            format!("{error:?}").replace('\n', "; ")
        }
    })?;
    // The compiler's own pool lacks the options, so no list is packed in it.
    DescriptorPool::from_file_descriptor_set(files).map_err(|error| error.to_string())
}

/// The full names of a pool's messages, without Google's well-known ones.
fn messages(pool: &DescriptorPool) -> Vec<String> {
    let mut names = Vec::new();
    for message in pool.all_messages() {
        if message.package_name() != "google.protobuf" && !message.is_map_entry() {
            names.push(message.full_name().to_owned());
        }
    }
    names
}

fn message_named(
    pool: &DescriptorPool,
    named: Option<&Named>,
    mistakes: &mut Vec<Mistake>,
) -> Option<MessageDescriptor> {
    let named = named?;
    let message = pool.get_message_by_name(&named.text);
    if message.is_none() {
        let accepted = messages(pool).join(", ");
        mistakes.push(named.mistake("there is no such message", &accepted));
    }
    message
}

impl Schema {
    /// The schema that the config names; `None` after a mistake.
    pub fn of_config(config: &PlatformConfig, mistakes: &mut Vec<Mistake>) -> Option<Self> {
        if config.body? != BodyFormat::Protobuf {
            return Some(Self::Json);
        }

        let proto = config.proto.as_ref()?;
        let pool = match compile(&config.proto_path) {
            Ok(pool) => pool,
            Err(why) => {
                mistakes.push(proto.mistake(&why, "a .proto file that compiles"));
                return None;
            }
        };

        // Both before either is missed, so that the mistakes of both are reported.
        let request = message_named(&pool, config.request_message.as_ref(), mistakes);
        let response = message_named(&pool, config.response_message.as_ref(), mistakes);
        Some(Self::Protobuf {
            request: request?,
            response: response?,
        })
    }

    /// Hash of the schema's files, including imports.
    pub fn fingerprint(&self) -> u64 {
        let mut contents = DefaultHasher::new();
        if let Self::Protobuf { request, .. } = self {
            request.parent_pool().encode_to_vec().hash(&mut contents);
        }
        contents.finish()
    }

    pub const fn request(&self) -> Option<&MessageDescriptor> {
        match self {
            Self::Protobuf { request, .. } => Some(request),
            Self::Json => None,
        }
    }

    pub const fn response(&self) -> Option<&MessageDescriptor> {
        match self {
            Self::Protobuf { response, .. } => Some(response),
            Self::Json => None,
        }
    }
}

/// The content of a path's last field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Value,
    /// A number that may be a fraction.
    Amount,
    Message,
}

/// The fields of a path, from a message; any names in JSON.
pub fn resolve(
    message: Option<&MessageDescriptor>,
    named: &Named,
    end: End,
) -> Result<Vec<PathStep>, Mistake> {
    let segments: Vec<&str> = named.text.split('.').collect();
    if segments.len() > MAX_DEPTH || segments.iter().any(|segment| segment.is_empty()) {
        let accepted = format!("at most {MAX_DEPTH} names separated by dots, such as device.imei");
        return Err(named.mistake("is not a path", &accepted));
    }

    let mut message = message.cloned();
    let mut steps = Vec::with_capacity(segments.len());
    for (index, segment) in segments.iter().enumerate() {
        let is_last = index + 1 == segments.len();
        let holds_value = is_last && end != End::Message;
        let Some(parent) = message.take() else {
            steps.push(PathStep::of_json(segment, holds_value));
            continue;
        };
        let Some(field) = parent.get_field_by_name(segment) else {
            let why = format!("{} has no field {segment:?}", parent.name());
            return Err(named.mistake(&why, &names(&parent)));
        };

        let label = format!("{}.{segment}", parent.name());
        let kind = field.kind();
        message = kind.as_message().cloned();
        let scalar = scalar(&kind);
        let is_float = scalar.is_some_and(Scalar::is_float);
        if field.is_map() || field.is_group() || is_float && end != End::Amount {
            let what = if field.is_map() {
                "map"
            } else if field.is_group() {
                "group"
            } else {
                "float"
            };
            return Err(named.mistake(&format!("{label} is a {what}"), &names(&parent)));
        }

        match (&message, holds_value) {
            (Some(message), true) => {
                let why = format!("{label} is a message");
                let accepted = format!("one of its fields: {}", names(message));
                return Err(named.mistake(&why, &accepted));
            }
            (None, false) => {
                let why = format!("{label} is not a message and has no fields");
                return Err(named.mistake(&why, "a field that is a message"));
            }
            _ => steps.push(PathStep::of_protobuf(&field, scalar, label)),
        }
    }
    Ok(steps)
}

impl PathStep {
    /// The type of a path's value.
    pub fn value(&self) -> Scalar {
        self.scalar.expect("a path to a value ends with one")
    }

    /// The numbers of a closed enum, as those of proto2 are; `None` for other types.
    pub fn closed(&self) -> Option<Box<[i64]>> {
        let names = self.names.as_ref()?;
        let is_closed = names.parent_file().syntax() == Syntax::Proto2;
        is_closed.then(|| names.values().map(|value| value.number().into()).collect())
    }

    fn of_json(name: &str, holds_value: bool) -> Self {
        Self {
            name: name.to_owned(),
            number: 0,
            is_list: false,
            is_packed: false,
            scalar: holds_value.then_some(Scalar::Text),
            names: None,
            is_required: false,
            is_zero_when_absent: false,
            message: None,
            label: name.to_owned(),
        }
    }

    fn of_protobuf(field: &FieldDescriptor, scalar: Option<Scalar>, label: String) -> Self {
        let is_list = field.cardinality() == Cardinality::Repeated;
        let is_number = scalar.is_some_and(Scalar::is_number);
        Self {
            name: field.name().to_owned(),
            number: field.number(),
            is_list,
            is_packed: field.is_packed(),
            scalar,
            names: field.kind().as_enum().cloned(),
            is_required: field.cardinality() == Cardinality::Required,
            is_zero_when_absent: is_number && !is_list && !field.supports_presence(),
            message: field.kind().as_message().cloned(),
            label,
        }
    }
}

/// A mistake if a step is repeated.
pub fn check_single(named: &Named, steps: &[PathStep]) -> Result<(), Mistake> {
    match steps.iter().find(|step| step.is_list) {
        None => Ok(()),
        Some(step) => Err(named.mistake(
            &format!("{} is repeated", step.label),
            "a field that is not repeated",
        )),
    }
}

/// A mistake if the last step is not a number; JSON accepts any value.
pub fn check_number(named: &Named, schema: &Schema, steps: &[PathStep]) -> Result<(), Mistake> {
    let is_number = steps
        .last()
        .and_then(|step| step.scalar)
        .is_some_and(Scalar::is_number);
    match (schema, steps.last()) {
        (Schema::Protobuf { .. }, Some(step)) if !is_number => Err(named.mistake(
            &format!("{} is not a number", step.label),
            "an integer, an enum or a bool",
        )),
        _ => Ok(()),
    }
}

/// A mistake if the last step does not hold a number of a value, or cannot be omitted.
pub fn check_amounts(
    named: &Named,
    schema: &Schema,
    step: &PathStep,
    mut numbers: impl Iterator<Item = f64>,
) -> Result<(), Mistake> {
    let scalar = step.value();
    if !scalar.is_float() {
        check_number(named, schema, std::slice::from_ref(step))?;
    }

    if step.is_required {
        let why = format!("{} is required, and a bid may have no value", step.label);
        return Err(named.mistake(&why, "an optional field"));
    }

    let is_whole = scalar.is_number();
    match numbers.find(|number| is_whole && !scalar.holds_whole(*number)) {
        Some(number) => Err(named.mistake(
            &format!("it cannot hold {number}"),
            "a field whose type holds all values, such as a double",
        )),
        None => Ok(()),
    }
}

/// A mistake if a strategy id does not fit into a field of this type, or is not canonical.
pub fn check_ids(named: &Named, scalar: Scalar, ids: &[&[u8]]) -> Result<(), Mistake> {
    let unfit = scalar.range().and_then(|range| unfit_ids(range, ids));
    match unfit {
        None => Ok(()),
        Some((ids, accepted)) => Err(named.mistake(&format!("it cannot hold {ids}"), &accepted)),
    }
}

/// The strategy ids that are not canonical numbers within a range, and the accepted ones.
fn unfit_ids(range: (i128, i128), ids: &[&[u8]]) -> Option<(String, String)> {
    let (least, greatest) = range;
    let mut unfit = Vec::new();
    for id in ids {
        let number = canonical_integer_of(id);
        if !number.is_some_and(|number| (least..=greatest).contains(&number)) {
            unfit.push(format!("{:?}", String::from_utf8_lossy(id)));
        }
    }
    if unfit.is_empty() {
        return None;
    }

    let accepted =
        format!("strategy ids from {least} to {greatest}, without a plus or leading zeros");
    Some((format!("strategy {}", unfit.join(", ")), accepted))
}

fn names(message: &MessageDescriptor) -> String {
    let names: Vec<String> = message
        .fields()
        .map(|field| field.name().to_owned())
        .collect();
    names.join(", ")
}

const fn scalar(kind: &Kind) -> Option<Scalar> {
    Some(match kind {
        Kind::Int32 => Scalar::Int32,
        Kind::Int64 => Scalar::Int64,
        Kind::Uint32 => Scalar::Uint32,
        Kind::Uint64 => Scalar::Uint64,
        Kind::Sint32 => Scalar::Sint32,
        Kind::Sint64 => Scalar::Sint64,
        Kind::Fixed32 => Scalar::Fixed32,
        Kind::Fixed64 => Scalar::Fixed64,
        Kind::Sfixed32 => Scalar::Sfixed32,
        Kind::Sfixed64 => Scalar::Sfixed64,

        Kind::Bool => Scalar::Bool,
        Kind::Enum(_) => Scalar::Enum,
        Kind::String | Kind::Bytes => Scalar::Text,
        Kind::Float => Scalar::Float,
        Kind::Double => Scalar::Double,
        Kind::Message(_) => return None,
    })
}
