//! Literals of lists, maps and objects.

use super::grammar::{Node, Parse, Parser};
use super::token::Token;
use crate::ast::{Expr, ExprKind, ListLiteral, MapEntry, StructField, StructLiteral};

impl Parser<'_> {
    pub(super) fn parse_struct_literal(&mut self, name: String) -> Parse<Node> {
        let start = self.expect("{")?;
        let id = self.new_id(start);
        let mut fields = Vec::new();
        let mut height = 0;
        while self.accept("}").is_none() {
            let optional = self.parse_optional_mark();
            let field = self.parse_field_name()?;
            let colon = self.expect(":")?;
            let field_id = self.new_id(colon);
            let value = self.parse_expr()?;
            height = height.max(value.height);
            fields.push(StructField {
                id: field_id,
                name: field,
                value: value.expr,
                optional,
            });
            self.parse_separator("}")?;
        }
        let kind = ExprKind::Struct(StructLiteral { name, fields });
        self.checked(Expr { id, kind }, height + 1)
    }

    /// Accepts a comma, unless the closing bracket follows.
    fn parse_separator(&mut self, close: &str) -> Parse<()> {
        let is_closed = matches!(self.peek(), Token::Symbol(symbol) if *symbol == close);
        if is_closed {
            return Ok(());
        }
        if self.accept(",").is_some() {
            // At the end of the text the bracket is missing. Elsewhere a trailing comma is allowed.
            return match self.peek() {
                Token::End => self.expect(close).map(|_| ()),
                _ => Ok(()),
            };
        }
        self.stop_at(&format!("{{'{close}', ','}}"))
    }

    fn parse_optional_mark(&mut self) -> bool {
        let Some(offset) = self.accept("?") else {
            return false;
        };
        // The entry is still parsed, so that one response names all errors.
        if !self.settings.optional_syntax {
            self.report(offset, "unsupported syntax '?'".into());
        }
        self.settings.optional_syntax
    }

    pub(super) fn parse_list_literal(&mut self) -> Parse<Node> {
        let start = self.expect("[")?;
        let id = self.new_id(start);
        let (mut elements, mut optional, mut height) = (Vec::new(), Vec::new(), 0);
        while self.accept("]").is_none() {
            if self.parse_optional_mark() {
                optional.push(elements.len());
            }
            let element = self.parse_expr()?;
            height = height.max(element.height);
            elements.push(element.expr);
            self.parse_separator("]")?;
        }
        let kind = ExprKind::List(ListLiteral { elements, optional });
        self.checked(Expr { id, kind }, height + 1)
    }

    pub(super) fn parse_map_literal(&mut self) -> Parse<Node> {
        let start = self.expect("{")?;
        let id = self.new_id(start);
        let (mut entries, mut height) = (Vec::new(), 0);
        while self.accept("}").is_none() {
            let optional = self.parse_optional_mark();
            let key = self.parse_expr()?;
            let colon = self.expect(":")?;
            let entry_id = self.new_id(colon);
            let value = self.parse_expr()?;
            height = height.max(key.height).max(value.height);
            entries.push(MapEntry {
                id: entry_id,
                key: key.expr,
                value: value.expr,
                optional,
            });
            self.parse_separator("}")?;
        }
        self.checked(
            Expr {
                id,
                kind: ExprKind::Map(entries),
            },
            height + 1,
        )
    }
}
