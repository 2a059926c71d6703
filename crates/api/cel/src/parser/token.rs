//! Tokens of an expression.

/// A kind of token with its value.
#[derive(Debug, Clone, PartialEq)]
pub enum Token {
    /// The end of the text.
    End,
    /// An operator, a bracket, or one of the words `in`, `true`, `false`, `null`.
    Symbol(&'static str),
    /// An identifier.
    Ident(String),
    /// An identifier between backquotes.
    EscapedIdent(String),
    /// The digits of a whole number, without a sign.
    Int(String),
    /// The digits of an unsigned number, without the suffix.
    Uint(String),
    /// The digits of a floating point number.
    Double(String),
    /// A string.
    String(String),
    /// A sequence of bytes.
    Bytes(Vec<u8>),
}

/// A token with its offset in code points and its text.
#[derive(Debug, Clone, PartialEq)]
pub struct Positioned {
    /// The token.
    pub token: Token,
    /// The offset.
    pub offset: u32,
    /// The text as written.
    pub text: String,
}
