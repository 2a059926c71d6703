//! Binary operators.

use super::grammar::{Node, Parse, Parser, Stop};
use super::token::Token;
use crate::ast::{Call, Expr, ExprId, ExprKind};

fn binary_operator(token: &Token) -> Option<(&'static str, u8)> {
    let Token::Symbol(symbol) = token else {
        return None;
    };
    // The numbers are the precedences of CEL's grammar: relations, sums, products.
    Some(match *symbol {
        "<" => ("_<_", 1),
        "<=" => ("_<=_", 1),
        ">" => ("_>_", 1),
        ">=" => ("_>=_", 1),
        "==" => ("_==_", 1),
        "!=" => ("_!=_", 1),
        "in" => ("@in", 1),
        "+" => ("_+_", 2),
        "-" => ("_-_", 2),
        "*" => ("_*_", 3),
        "/" => ("_/_", 3),
        "%" => ("_%_", 3),
        _ => return None,
    })
}

/// Operands and operators that wait for operators that bind more strongly.
#[derive(Default)]
struct Binary {
    operands: Vec<Node>,
    operators: Vec<(u32, &'static str, u8)>,
}

/// Terms between `&&`, or between `||`.
#[derive(Default)]
struct Chain {
    terms: Vec<Option<Expr>>,
    operators: Vec<ExprId>,
    height: u16,
}

impl Chain {
    fn push(&mut self, term: Node) {
        self.height = self.height.max(term.height);
        self.terms.push(Some(term.expr));
    }
}

impl Parser<'_> {
    /// Parses operands and binary operators without recursion for the precedences, which saves
    /// stack.
    pub(super) fn parse_operators(&mut self) -> Parse<Node> {
        let (mut ors, mut ands) = (Chain::default(), Chain::default());
        let mut binary = Binary::default();
        loop {
            let operand = self.parse_unary()?;
            binary.operands.push(operand);
            if let Some((function, precedence)) = binary_operator(self.peek()) {
                self.reduce(&mut binary, precedence)?;
                let offset = self.advance();
                binary.operators.push((offset, function, precedence));
                continue;
            }
            let term = self.finish_binary(&mut binary)?;
            ands.push(term);
            if let Some(offset) = self.accept("&&") {
                ands.operators.push(self.new_id(offset));
                continue;
            }
            let term = self.join_chain("_&&_", &mut ands)?;
            ors.push(term);
            match self.accept("||") {
                Some(offset) => ors.operators.push(self.new_id(offset)),
                None => return self.join_chain("_||_", &mut ors),
            }
        }
    }

    /// Applies the operators on the stack that bind at least as strongly as `precedence`.
    fn reduce(&mut self, binary: &mut Binary, precedence: u8) -> Parse<()> {
        // Operators of one precedence bind to the left.
        while binary
            .operators
            .last()
            .is_some_and(|(.., pending)| *pending >= precedence)
        {
            let right = binary.operands.pop();
            let (Some((offset, function, _)), Some(left), Some(right)) =
                (binary.operators.pop(), binary.operands.pop(), right)
            else {
                return Err(Stop);
            };
            let joined = self.call(offset, function, vec![left, right])?;
            binary.operands.push(joined);
        }
        Ok(())
    }

    fn finish_binary(&mut self, binary: &mut Binary) -> Parse<Node> {
        self.reduce(binary, 0)?;
        binary.operands.pop().ok_or(Stop)
    }

    /// Joins the terms of `&&` or `||` into a balanced tree.
    fn join_chain(&mut self, function: &str, chain: &mut Chain) -> Parse<Node> {
        // cel-go balances chains as well, so that a long one stays below the depth limit.
        let Chain {
            mut terms,
            operators,
            height,
        } = std::mem::take(chain);
        // A balanced tree of n operators adds log2(n) + 1 levels.
        let levels = operators
            .len()
            .checked_ilog2()
            .map_or(0, |levels| levels as u16 + 1);
        let expr = balance(function, &mut terms, &operators).ok_or(Stop)?;
        self.checked(expr, height + levels)
    }
}

/// Joins terms by operators into a tree of logarithmic depth.
fn balance(function: &str, terms: &mut [Option<Expr>], operators: &[ExprId]) -> Option<Expr> {
    if operators.is_empty() {
        return terms.first_mut()?.take();
    }
    let middle = operators.len() / 2;
    let (left_terms, right_terms) = terms.split_at_mut_checked(middle + 1)?;
    let (left_operators, rest) = operators.split_at_checked(middle)?;
    let (id, right_operators) = rest.split_first()?;
    let left = balance(function, left_terms, left_operators)?;
    let right = balance(function, right_terms, right_operators)?;
    let call = Call {
        target: None,
        function: function.to_owned(),
        arguments: vec![left, right],
    };
    Some(Expr {
        id: *id,
        kind: ExprKind::Call(call),
    })
}
