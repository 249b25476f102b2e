//! Codes of a whole answer.

use super::schema::{PathStep, Scalar, Schema};
use crate::config::{Code, CodeConfig, Mistake, Named};

/// The possible codes of the whole answer in one field.
#[derive(Debug)]
pub struct Codes {
    bid: Code,
    no_bid: Code,
    error: Option<Code>,
}

/// The facts that choose a code.
#[derive(Debug, Clone, Copy)]
pub struct CodeCase {
    /// Whether a strategy bids.
    pub is_bid: bool,
    /// Whether the request was unreadable or unauthorized.
    pub is_failure: bool,
}

impl Codes {
    /// The codes of a field, whose type must hold them.
    pub fn compile(
        schema: &Schema,
        named: &Named,
        step: &PathStep,
        code: &CodeConfig,
    ) -> Result<Self, Mistake> {
        let CodeConfig {
            bid, no_bid, error, ..
        } = code.clone();
        let scalar = step.value();
        let codes = Self { bid, no_bid, error };

        for code in codes.all() {
            let is_held = match code {
                _ if matches!(schema, Schema::Json) => true,
                Code::Number(number) => scalar.is_number() && scalar.holds((*number).into()),
                Code::Bool(_) => scalar == Scalar::Bool,
                Code::Text(_) => scalar == Scalar::Text,
            };
            if !is_held {
                let why = format!("it does not hold {code}");
                return Err(named.mistake(&why, "codes that its type holds"));
            }
        }
        Ok(codes)
    }

    fn all(&self) -> impl Iterator<Item = &Code> {
        [&self.bid, &self.no_bid].into_iter().chain(&self.error)
    }

    pub fn of(&self, case: CodeCase) -> &Code {
        match &self.error {
            Some(error) if case.is_failure => error,
            _ if case.is_bid => &self.bid,
            _ => &self.no_bid,
        }
    }
}
