//! A recursive descent parser with precedence climbing.

use super::literal::{parse_int, parse_uint};
use super::settings::{MAX_DEPTH, Parsed, Settings};
use super::token::{Positioned, Token};
use crate::ast::{Call, Expr, ExprFactory, ExprId, ExprKind, Select, Unexpanded};
use crate::escaping::RESERVED;
use crate::source::Issue;
use crate::value::Value;
use crate::walk::copy_expr;

/// The depth of a macro: its comprehension with the calls and lists in its steps.
const MACRO_HEIGHT: u16 = 4;
const EXPRESSION_START: &str = "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', \
    NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}";

/// The parser stops at a syntax error, which is among the issues.
pub(super) struct Stop;

pub(super) type Parse<T> = Result<T, Stop>;

/// An expression with the depth of its tree.
pub(super) struct Node {
    pub(super) expr: Expr,
    pub(super) height: u16,
}

pub(super) struct Parser<'s> {
    tokens: Vec<Positioned>,
    position: usize,
    pub(super) settings: &'s Settings,
    issues: Vec<Issue>,
    positions: Vec<u32>,
    depth: u16,
    /// The position of the macro that is being expanded.
    macro_offset: u32,
}

pub fn parse_tokens(
    tokens: Vec<Positioned>,
    issues: Vec<Issue>,
    settings: &Settings,
) -> Result<Parsed, Vec<Issue>> {
    // Identifiers start at 1, so that zero can stand for a node without a position.
    let mut parser = Parser {
        tokens,
        position: 0,
        settings,
        issues,
        positions: vec![0],
        depth: 0,
        macro_offset: 0,
    };
    match parser.parse_start() {
        Ok(expr) if parser.issues.is_empty() => Ok(Parsed {
            expr,
            positions: parser.positions,
        }),
        _ => Err(parser.issues),
    }
}

impl Parser<'_> {
    pub(super) fn peek(&self) -> &Token {
        self.peek_at(0)
    }

    fn peek_at(&self, ahead: usize) -> &Token {
        self.tokens
            .get(self.position + ahead)
            .map_or(&Token::End, |positioned| &positioned.token)
    }

    fn offset(&self) -> u32 {
        self.tokens
            .get(self.position)
            .or(self.tokens.last())
            .map_or(0, |token| token.offset)
    }

    pub(super) fn advance(&mut self) -> u32 {
        let offset = self.offset();
        self.position += 1;
        offset
    }

    pub(super) fn accept(&mut self, symbol: &str) -> Option<u32> {
        matches!(self.peek(), Token::Symbol(found) if *found == symbol).then(|| self.advance())
    }

    pub(super) fn expect(&mut self, symbol: &str) -> Parse<u32> {
        // The messages are those of upstream's generated parser, because clients show and compare
        // them.
        if let Some(offset) = self.accept(symbol) {
            return Ok(offset);
        }
        match (self.peek(), self.peek_at(1)) {
            (Token::End, _) if symbol != ":" => {
                let message = format!("Syntax error: missing '{symbol}' at '<EOF>'");
                self.report(self.offset(), message);
                Err(Stop)
            }
            (_, Token::Symbol(next)) if *next == symbol => {
                self.report_input("extraneous input", &format!("'{symbol}'"));
                self.advance();
                Ok(self.advance())
            }
            _ => self.stop_at(&format!("'{symbol}'")),
        }
    }

    fn report_input(&mut self, problem: &str, expected: &str) {
        let token = self.tokens.get(self.position).or(self.tokens.last());
        let text = token.map_or("<EOF>", |token| &token.text);
        let message = format!("Syntax error: {problem} '{text}' expecting {expected}");
        let offset = self.offset();
        self.report(offset, message);
    }

    pub(super) fn stop_at<T>(&mut self, expected: &str) -> Parse<T> {
        self.report_input("mismatched input", expected);
        Err(Stop)
    }

    pub(super) fn report(&mut self, offset: u32, message: String) {
        self.issues.push(Issue {
            offset: Some(offset),
            message,
        });
    }

    pub(super) fn new_id(&mut self, offset: u32) -> ExprId {
        self.positions.push(offset);
        (self.positions.len() - 1) as ExprId
    }

    fn node(&mut self, offset: u32, kind: ExprKind, height: u16) -> Parse<Node> {
        let expr = Expr {
            id: self.new_id(offset),
            kind,
        };
        self.checked(expr, height)
    }

    pub(super) fn checked(&mut self, expr: Expr, height: u16) -> Parse<Node> {
        // Later passes visit the tree recursively, so its height is bounded here once for all of
        // them.
        if height > MAX_DEPTH {
            return self.stop_too_deep();
        }
        Ok(Node { expr, height })
    }

    fn stop_too_deep<T>(&mut self) -> Parse<T> {
        let message = format!("expression recursion limit exceeded: {MAX_DEPTH}");
        self.issues.push(Issue {
            offset: None,
            message,
        });
        Err(Stop)
    }

    /// Reports an error and continues with a placeholder.
    fn placeholder(&mut self, offset: u32, message: String) -> Parse<Node> {
        self.report(offset, message);
        self.node(offset, ExprKind::Unspecified, 1)
    }

    fn parse_start(&mut self) -> Parse<Expr> {
        let node = self.parse_expr()?;
        match self.peek() {
            Token::End => Ok(node.expr),
            _ if matches!(self.peek_at(1), Token::End) => {
                self.report_input("extraneous input", "<EOF>");
                Err(Stop)
            }
            _ => self.stop_at("<EOF>"),
        }
    }

    pub(super) fn parse_expr(&mut self) -> Parse<Node> {
        self.depth += 1;
        // The parser is recursive itself: brackets alone add depth without a node.
        if self.depth > MAX_DEPTH {
            return self.stop_too_deep();
        }
        let condition = self.parse_operators()?;
        let result = match self.accept("?") {
            None => condition,
            Some(offset) => {
                let yes = self.parse_operators()?;
                self.expect(":")?;
                let no = self.parse_expr()?;
                self.call(offset, "_?_:_", vec![condition, yes, no])?
            }
        };
        self.depth -= 1;
        Ok(result)
    }

    pub(super) fn parse_unary(&mut self) -> Parse<Node> {
        let (symbol, function) = match self.peek() {
            Token::Symbol("!") => ("!", "!_"),
            // The sign belongs to a number: without it, the smallest integer could not be written.
            Token::Symbol("-") if !matches!(self.peek_at(1), Token::Int(_) | Token::Double(_)) => {
                ("-", "-_")
            }
            _ => return self.parse_member(),
        };
        // A loop and not a recursion, so that thousands of signs need no stack.
        let first = self.offset();
        let mut count = 0;
        while self.accept(symbol).is_some() {
            count += 1;
        }
        let operand = self.parse_member()?;
        // As in cel-go, an even number of signs leaves no call behind, which the cost depends on.
        if count % 2 == 0 {
            Ok(operand)
        } else {
            self.call(first, function, vec![operand])
        }
    }

    fn parse_member(&mut self) -> Parse<Node> {
        let mut node = self.parse_primary()?;
        loop {
            if let Some(offset) = self.accept(".") {
                node = self.parse_selection(node, offset)?;
            } else if let Some(offset) = self.accept("[") {
                let function = match self.accept("?") {
                    Some(_) => "_[?_]",
                    None => "_[_]",
                };
                let index = self.parse_expr()?;
                self.expect("]")?;
                // The rest is still parsed, so that one response names all errors.
                if function == "_[?_]" && !self.settings.optional_syntax {
                    node = self.placeholder(offset, "unsupported syntax '[?'".into())?;
                } else {
                    node = self.call(offset, function, vec![node, index])?;
                }
            } else {
                return Ok(node);
            }
        }
    }

    fn parse_selection(&mut self, operand: Node, offset: u32) -> Parse<Node> {
        let optional = self.accept("?").is_some();
        let name_offset = self.offset();
        let field = self.parse_field_name()?;
        if optional && !self.settings.optional_syntax {
            return self.placeholder(offset, "unsupported syntax '.?'".into());
        }
        if optional {
            let field = Value::string(field);
            let literal = self.node(name_offset, ExprKind::Literal(field), 1)?;
            return self.call(offset, "_?._", vec![operand, literal]);
        }
        let Some(open) = self.accept("(") else {
            let height = operand.height + 1;
            let operand = Box::new(operand.expr);
            let select = Select {
                operand,
                field,
                test_only: false,
            };
            return self.node(offset, ExprKind::Select(select), height);
        };
        let arguments = self.parse_list(")")?;
        self.call_or_macro(open, &field, Some(operand), arguments)
    }

    pub(super) fn parse_field_name(&mut self) -> Parse<String> {
        match self.peek().clone() {
            Token::Ident(name) => {
                self.advance();
                Ok(name)
            }
            Token::EscapedIdent(name) => {
                let offset = self.advance();
                if !self.settings.escaped_identifiers {
                    self.report(offset, "unsupported syntax: '`'".into());
                }
                Ok(name)
            }
            _ => {
                let token = self.tokens.get(self.position);
                let text = token.map_or("", |token| &token.text).replace("<EOF>", "");
                let message = format!("Syntax error: no viable alternative at input '.{text}'");
                self.report(self.offset(), message);
                Err(Stop)
            }
        }
    }

    fn parse_primary(&mut self) -> Parse<Node> {
        match self.peek() {
            Token::Symbol("(") => {
                self.advance();
                let node = self.parse_expr()?;
                self.expect(")")?;
                Ok(node)
            }
            Token::Symbol("[") => self.parse_list_literal(),
            Token::Symbol("{") => self.parse_map_literal(),
            Token::Symbol(".") => {
                let offset = self.advance();
                match self.peek() {
                    Token::Ident(_) => self.parse_identifier(offset, "."),
                    _ => self.stop_at("IDENTIFIER"),
                }
            }
            Token::Ident(_) => self.parse_identifier(self.offset(), ""),
            _ => self.parse_literal(),
        }
    }

    fn parse_identifier(&mut self, start: u32, prefix: &str) -> Parse<Node> {
        if let Some((name, length)) = self.find_struct_name() {
            self.position += length;
            return self.parse_struct_literal(format!("{prefix}{name}"));
        }
        let Token::Ident(name) = self.peek().clone() else {
            return self.stop_at("IDENTIFIER");
        };
        let offset = self.advance();
        let full_name = format!("{prefix}{name}");
        let call = self.accept("(");
        let arguments = match call {
            Some(_) => Some(self.parse_list(")")?),
            None => None,
        };
        // Checked after the arguments, so that errors within them are reported as well.
        if RESERVED.contains(&name.as_str()) {
            return self.placeholder(start, format!("reserved identifier: {name}"));
        }
        match (call, arguments) {
            (Some(open), Some(arguments)) => self.call_or_macro(open, &full_name, None, arguments),
            _ => self.node(offset, ExprKind::Ident(full_name), 1),
        }
    }

    /// Returns the qualified name before a `{`, and its number of tokens.
    fn find_struct_name(&self) -> Option<(String, usize)> {
        let mut name = String::new();
        let mut length = 0;
        // Only a brace decides that a name was a type, so the parser looks ahead over the whole
        // name.
        loop {
            let Token::Ident(part) = self.peek_at(length) else {
                return None;
            };
            name.push_str(part);
            match self.peek_at(length + 1) {
                Token::Symbol("{") => return Some((name, length + 1)),
                Token::Symbol(".") => name.push('.'),
                _ => return None,
            }
            length += 2;
        }
    }

    fn parse_list(&mut self, close: &str) -> Parse<Vec<Node>> {
        let mut nodes = Vec::new();
        if self.accept(close).is_some() {
            return Ok(nodes);
        }
        loop {
            nodes.push(self.parse_expr()?);
            if self.accept(close).is_some() {
                return Ok(nodes);
            }
            if self.accept(",").is_none() {
                self.expect(close)?;
                return Ok(nodes);
            }
        }
    }

    fn parse_literal(&mut self) -> Parse<Node> {
        let start = self.offset();
        let negative = self.accept("-").is_some();
        let value = match self.peek().clone() {
            Token::Int(digits) => parse_int(&digits, negative).map(Value::Int).ok_or("int"),
            // An overflow is an error in cel-go, not infinity.
            Token::Double(digits) => match digits.parse::<f64>() {
                Ok(value) if value.is_finite() => {
                    Ok(Value::Double(if negative { -value } else { value }))
                }
                _ => Err("double"),
            },
            Token::Uint(digits) if !negative => parse_uint(&digits).map(Value::Uint).ok_or("uint"),
            Token::String(text) if !negative => Ok(Value::string(text)),
            Token::Bytes(bytes) if !negative => Ok(Value::Bytes(bytes.into())),
            Token::Symbol("true") if !negative => Ok(Value::Bool(true)),
            Token::Symbol("false") if !negative => Ok(Value::Bool(false)),
            Token::Symbol("null") if !negative => Ok(Value::Null),
            _ => return self.stop_at_start(),
        };
        self.advance();
        match value {
            Ok(value) => self.node(start, ExprKind::Literal(value), 1),
            Err(kind) => self.placeholder(start, format!("invalid {kind} literal")),
        }
    }

    /// Reports a token with which no expression starts. A single wrong token is skipped.
    fn stop_at_start(&mut self) -> Parse<Node> {
        let before = |back: usize| {
            self.position
                .checked_sub(back)
                .and_then(|at| self.tokens.get(at))
        };
        let follows =
            |back, symbol| before(back).is_some_and(|found| found.token == Token::Symbol(symbol));
        let is_call = follows(1, "(")
            && before(2).is_some_and(|found| matches!(found.token, Token::Ident(_)));
        let is_index = follows(1, "[")
            && before(2).is_some_and(|found| {
                matches!(found.token, Token::Ident(_) | Token::Symbol(")" | "]"))
            });
        if *self.peek() == Token::End && (follows(1, "[") || follows(1, "{")) && !is_index {
            let (open, closed) = if follows(1, "[") {
                ("'[', ", "'[', ']', ")
            } else {
                ("'{', ", "'{', '}', ")
            };
            let expected = EXPRESSION_START
                .replace(open, closed)
                .replace("'.', ", "'.', ',', ");
            return self.stop_at(&expected.replace("'!', ", "'!', '?', "));
        }
        // The tokens that upstream's generated parser expects in the same place.
        let mut expected = EXPRESSION_START.to_owned();
        if is_call {
            expected = expected.replace("'.', '-'", "')', '.', '-'");
        } else if is_index {
            expected = expected.replace("'!', ", "'!', '?', ");
        }
        let starts = match self.peek_at(1) {
            Token::End => false,
            Token::Symbol(symbol) => {
                ["[", "{", "(", ".", "-", "!", "true", "false", "null"].contains(symbol)
            }
            _ => true,
        };
        if *self.peek() != Token::End && starts && !is_call {
            self.report_input("extraneous input", &expected);
            self.advance();
            return self.parse_unary();
        }
        self.stop_at(&expected)
    }

    pub(super) fn call(
        &mut self,
        offset: u32,
        function: &str,
        arguments: Vec<Node>,
    ) -> Parse<Node> {
        let height = arguments.iter().map(|node| node.height).max().unwrap_or(0) + 1;
        let arguments = arguments.into_iter().map(|node| node.expr).collect();
        let call = Call {
            target: None,
            function: function.to_owned(),
            arguments,
        };
        self.node(offset, ExprKind::Call(call), height)
    }

    fn call_or_macro(
        &mut self,
        offset: u32,
        function: &str,
        target: Option<Node>,
        arguments: Vec<Node>,
    ) -> Parse<Node> {
        let count = arguments.len();
        let height = arguments
            .iter()
            .chain(&target)
            .map(|node| node.height)
            .max()
            .unwrap_or(0);
        let target = target.map(|node| node.expr);
        let arguments: Vec<Expr> = arguments.into_iter().map(|node| node.expr).collect();
        // The last one wins, so that a library can replace a macro of the language.
        let found = self.settings.macros.iter().rev().find(|candidate| {
            candidate.name == function
                && candidate.receiver == target.is_some()
                && candidate.arguments.is_none_or(|expected| expected == count)
        });
        let (target, arguments) = match found {
            None => (target, arguments),
            Some(found) => {
                self.macro_offset = offset;
                match (found.expand)(self, target, arguments) {
                    // The expansion nests its arguments deeper, so macros within macros soon reach
                    // the limit.
                    Ok(expr) => return self.checked(expr, height + MACRO_HEIGHT),
                    Err(Unexpanded::Call(target, arguments)) => (target, arguments),
                    Err(Unexpanded::Error(error)) => {
                        let at = self
                            .positions
                            .get(error.id as usize)
                            .copied()
                            .unwrap_or(offset);
                        return self.placeholder(at, error.message);
                    }
                }
            }
        };
        let target = target.map(Box::new);
        let call = Call {
            target,
            function: function.to_owned(),
            arguments,
        };
        self.node(offset, ExprKind::Call(call), height + 1)
    }
}

impl ExprFactory for Parser<'_> {
    fn create(&mut self, kind: ExprKind) -> Expr {
        Expr {
            id: self.new_id(self.macro_offset),
            kind,
        }
    }

    fn copy(&mut self, expr: &Expr) -> Expr {
        let mut copied = expr.clone();
        // A copy gets identifiers of its own, because types and costs are stored by them.
        copy_expr(&mut copied, &mut |id| {
            let offset = self.positions.get(id as usize).copied().unwrap_or_default();
            self.new_id(offset)
        });
        copied
    }
}
