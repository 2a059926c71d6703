//! A mutating policy: its compiled expressions, and the patches that they compute.

use crate::activation::{Activation, ComposedVariables, Input};
use crate::conditions::{compile_conditions, match_conditions};
use crate::evaluate::{Allowance, Expression};
use crate::matching::MatchResources;
use crate::params::ParamKind;
use api_cel::cost::RUNTIME_BUDGET;
use api_cel::hosts::STORED_EXPRESSIONS;
use api_cel::hosts::patch::{convert_operations, convert_patch_value};
use api_cel::hosts::policy::{PolicyCompiler, Purpose};
use api_meta::Meta;
use api_meta::tree::{get, list, text};
use apiserver_webhook::ConditionVerdict;
use serde_json::Value;

/// A compiled policy.
pub struct MutatingPolicy {
    /// Name.
    pub name: String,
    /// `failurePolicy: Ignore`
    pub ignores_failure: bool,
    /// `reinvocationPolicy: IfNeeded`
    pub is_reinvocable: bool,
    /// The requests that it applies to.
    pub constraints: MatchResources,
    /// The kind of its parameters.
    pub param_kind: Option<ParamKind>,
    /// The mutations, in order.
    pub mutations: Vec<Mutation>,
    conditions: Vec<Expression>,
    variables: ComposedVariables,
}

/// A compiled mutation.
pub struct Mutation {
    kind: PatchType,
    expression: Expression,
}

#[derive(Clone, Copy)]
enum PatchType {
    ApplyConfiguration,
    JsonPatch,
}

/// The patch that a mutation computes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Patch {
    /// A partial object to merge.
    Partial(Value),
    /// The operations of a JSON patch.
    Operations(Value),
}

impl Mutation {
    fn compile(mutation: &Value, compiler: &PolicyCompiler) -> Self {
        let (kind, purpose, field) = match text(mutation, "patchType") {
            "JSONPatch" => (PatchType::JsonPatch, Purpose::JsonPatch, "jsonPatch"),
            _ => (
                PatchType::ApplyConfiguration,
                Purpose::ApplyConfiguration,
                "applyConfiguration",
            ),
        };
        let source = text(get(mutation, field), "expression");
        Mutation {
            kind,
            expression: Expression::compile(compiler, purpose, source, STORED_EXPRESSIONS),
        }
    }
}

impl MutatingPolicy {
    /// Compiles a policy. Expressions that do not compile fail when they are evaluated.
    pub fn compile(object: &Value) -> Self {
        let spec = get(object, "spec");
        // `params` is declared only with a `paramKind`: an expression that uses it otherwise is an
        // error, as upstream.
        let param_kind = ParamKind::parse(spec);
        let mut compiler = PolicyCompiler::new(param_kind.is_some());
        let variables = list(spec, "variables");
        let variables = ComposedVariables::compile(variables, &mut compiler, STORED_EXPRESSIONS);
        let mutations = list(spec, "mutations").iter();
        MutatingPolicy {
            name: object.name().to_owned(),
            ignores_failure: text(spec, "failurePolicy") == "Ignore",
            is_reinvocable: text(spec, "reinvocationPolicy") == "IfNeeded",
            constraints: MatchResources::parse(get(spec, "matchConstraints")),
            param_kind,
            mutations: mutations
                .map(|mutation| Mutation::compile(mutation, &compiler))
                .collect(),
            conditions: compile_conditions(list(spec, "matchConditions"), &compiler),
            variables,
        }
    }

    /// Evaluates the match conditions; None if there are none.
    pub fn match_conditions(
        &self,
        input: &Input<'_>,
        allowance: &mut Allowance,
    ) -> Option<ConditionVerdict> {
        let conditions = Some(self.conditions.as_slice()).filter(|all| !all.is_empty())?;
        let verdict = match_conditions(conditions, &self.variables, input, allowance);
        Some(verdict)
    }

    /// Computes the patch of a mutation.
    ///
    /// # Errors
    /// The expression can't be evaluated, or its value is no patch.
    pub fn compute_patch(
        &self,
        mutation: &Mutation,
        input: &Input<'_>,
        allowance: &mut Allowance,
    ) -> Result<Patch, String> {
        // A new activation for each mutation: variables may read the object, which the mutation
        // before has changed.
        let activation = Activation::new(input, &self.variables, true);
        // Each mutation has the whole budget: upstream passes `RuntimeCELCostBudget` to every
        // patcher.
        allowance.begin(RUNTIME_BUDGET);
        let value = mutation
            .expression
            .evaluate(&activation, allowance)?
            .value?;
        match mutation.kind {
            PatchType::ApplyConfiguration => convert_patch_value(&value).map(Patch::Partial),
            PatchType::JsonPatch => convert_operations(&value).map(Patch::Operations),
        }
        .map_err(|error| error.to_string())
    }
}
