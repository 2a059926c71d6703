//! The `spec` of a custom resource definition.

use super::conversion::{ConversionOptions, validate_conversion};
use super::names::validate_required_names;
use super::problems::{add_problems, check_embedded_metadata};
use super::version::{
    SELECTABLE_LIMIT, validate_columns, validate_deprecation, validate_selectable_fields,
    validate_subresources,
};
use crate::field::{Errors, Path};
use api_meta::names::{dns1035_label, dns1123_subdomain};
use api_meta::tree::{flag, get, has, list, opt, text};
use api_structural::{
    FieldPath, OldRules, RuleHistory, SchemaOptions, check_schema, visit_schemas,
};
use serde_json::Value;
use std::collections::HashSet;

/// Demands on a definition that depend on its old version: content that was accepted once may
/// remain.
pub(super) struct SpecOptions<'a> {
    schema: SchemaOptions,
    /// True if all versions need a schema.
    require_schema: bool,
    conversion: ConversionOptions,
    /// The old definition, whose long lists of selectable fields may remain.
    old: Option<&'a Value>,
    old_rules: Option<OldRules>,
}

impl<'a> SpecOptions<'a> {
    pub(super) fn for_create() -> Self {
        Self {
            schema: SchemaOptions::NEW,
            require_schema: true,
            conversion: ConversionOptions::for_create(),
            old: None,
            old_rules: None,
        }
    }

    pub(super) fn for_update(old: &'a Value, established: bool) -> Self {
        let schemas: Vec<&Value> = list(old, "versions")
            .iter()
            .filter_map(find_schema)
            .collect();
        Self {
            // The beta version accepted versions without a schema. If one is left, the others need
            // no schema either.
            schema: SchemaOptions::for_update(&schemas),
            require_schema: list(old, "versions")
                .iter()
                .all(|v| find_schema(v).is_some()),
            conversion: ConversionOptions::for_update(get(old, "conversion"), established),
            old: Some(old),
            old_rules: Some(OldRules::collect(&schemas)),
        }
    }

    fn find_old(&self, version: &Value) -> Option<&'a Value> {
        let same_name = |old: &&Value| text(old, "name") == text(version, "name");
        self.old
            .and_then(|old| list(old, "versions").iter().find(same_name))
    }

    fn rule_history(&self, version: &Value) -> RuleHistory<'_> {
        let old = self.find_old(version);
        RuleHistory {
            old: self.old_rules.as_ref(),
            is_unchanged: old.is_some_and(|old| find_schema(old) == find_schema(version)),
        }
    }

    fn allows_many_selectable_fields(&self, version: &Value) -> bool {
        self.find_old(version).is_some_and(|old| {
            // Only the unchanged list is exempt, so each change has to obey the limit.
            let before = list(old, "selectableFields");
            before.len() > SELECTABLE_LIMIT && before == list(version, "selectableFields")
        })
    }
}

fn find_schema(version: &Value) -> Option<&Value> {
    opt(get(version, "schema"), "openAPIV3Schema")
}

/// Fields that are equal in all versions.
struct SharedFields {
    schema: bool,
    subresources: bool,
    columns: bool,
    selectable: bool,
}

impl SharedFields {
    fn find(versions: &[Value]) -> Self {
        // A single version shares all fields with itself, so its errors have paths that start at
        // `spec`.
        let equal = |field: &str| {
            let first = versions.first().map(|v| get(v, field));
            versions.iter().all(|v| Some(get(v, field)) == first)
        };
        Self {
            schema: equal("schema"),
            subresources: equal("subresources"),
            columns: equal("additionalPrinterColumns"),
            selectable: equal("selectableFields"),
        }
    }
}

/// Validates the `spec` of a definition.
pub(super) fn validate_spec(spec: &Value, options: &SpecOptions<'_>, errors: &mut Errors) {
    let path = Path::ROOT.child("spec");
    // Several errors may concern one mistake. Clients show the first, so the order is upstream's.
    validate_group_and_scope(spec, &path, errors);
    let versions = list(spec, "versions");
    let preserves = flag(spec, "preserveUnknownFields");
    validate_schemas_present(spec, options.require_schema, &path, errors);
    let mut schema_options = options.schema;
    // Pruning, defaults and the extensions are defined for structural schemas only.
    schema_options.require_structure |= !preserves || has_extensions(versions);
    if has_defaults(versions) {
        schema_options.require_structure = true;
        if preserves {
            let at = path.child("preserveUnknownFields");
            errors.invalid(
                &at,
                true,
                "must be false in order to use defaults in the schema",
            );
        }
    }
    let shared = SharedFields::find(versions);
    validate_versions(versions, &shared, schema_options, options, errors);
    validate_version_list(versions, &path, errors);
    validate_required_names(get(spec, "names"), &path.child("names"), errors);
    validate_shared_fields(versions, &shared, schema_options, options, errors);
    let conversion = get(spec, "conversion");
    let at = path.child("conversion");
    let strategy = text(conversion, "strategy");
    if has(spec, "conversion") && strategy != "None" && preserves {
        let detail = "must be None if spec.preserveUnknownFields is true";
        errors.invalid(&at.child("strategy"), strategy, detail);
    }
    validate_conversion(conversion, &options.conversion, &at, errors);
}

fn validate_group_and_scope(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    // Groups without a dot, such as `apps`, are kept for the built-in types.
    let (group, at) = (text(spec, "group"), path.child("group"));
    let problems = dns1123_subdomain(group);
    if group.is_empty() {
        errors.required(&at, "");
    } else if !problems.is_empty() {
        errors.invalid(&at, group, problems.join(","));
    } else if !group.contains('.') {
        errors.invalid(&at, group, "should be a domain with at least one dot");
    }
    let scopes = ["Cluster", "Namespaced"];
    crate::rules::validate_required_one_of(spec, "scope", &scopes, path, errors);
}

fn validate_schemas_present(spec: &Value, required: bool, path: &Path<'_>, errors: &mut Errors) {
    let at = path.child("versions");
    // A definition that once had versions without a schema may keep them if they aren't served.
    let pruned = !flag(spec, "preserveUnknownFields");
    for (i, version) in list(spec, "versions").iter().enumerate() {
        let needed = required || pruned && flag(version, "served");
        if needed && find_schema(version).is_none() {
            let at = at.index(i);
            let detail = if required {
                ""
            } else {
                "because otherwise all fields are pruned"
            };
            errors.required(&at.child("schema").child("openAPIV3Schema"), detail);
        }
    }
}

fn has_schema_with(versions: &[Value], test: &dyn Fn(&Value) -> bool) -> bool {
    let mut schemas = versions.iter().filter_map(find_schema);
    schemas.any(|schema| visit_schemas(schema, &mut |node| test(node)))
}

fn has_defaults(versions: &[Value]) -> bool {
    has_schema_with(versions, &|node| has(node, "default"))
}

fn has_extensions(versions: &[Value]) -> bool {
    has_schema_with(versions, &|node| {
        let flags = [
            "x-kubernetes-embedded-resource",
            "x-kubernetes-int-or-string",
        ];
        let present = [
            "x-kubernetes-preserve-unknown-fields",
            "x-kubernetes-list-type",
        ];
        let lists = ["x-kubernetes-list-map-keys", "x-kubernetes-validations"];
        // Upstream has booleans for the first two, so false equals absent. The others count as soon
        // as they are present.
        flags.iter().any(|keyword| flag(node, keyword))
            || present.iter().any(|keyword| has(node, keyword))
            || lists.iter().any(|keyword| !list(node, keyword).is_empty())
    })
}

fn has_status(version: &Value) -> bool {
    has(get(version, "subresources"), "status")
}

fn validate_versions(
    versions: &[Value],
    shared: &SharedFields,
    schema_options: SchemaOptions,
    options: &SpecOptions<'_>,
    errors: &mut Errors,
) {
    let path = Path::ROOT.child("spec");
    let path = path.child("versions");
    for (i, version) in versions.iter().enumerate() {
        let at = path.index(i);
        let name = text(version, "name");
        let problems = dns1035_label(name);
        if !problems.is_empty() {
            errors.invalid(&at.child("name"), name, problems.join(","));
        }
        validate_deprecation(version, &at, errors);
        // A part that all versions share is validated once, by the caller, with the path of the
        // older form.
        if !shared.schema {
            let status = has_status(version);
            let (at, history) = (at.child("schema"), options.rule_history(version));
            validate_schema(version, status, schema_options, history, &at, errors);
        }
        if !shared.subresources {
            let at = at.child("subresources");
            validate_subresources(get(version, "subresources"), &at, errors);
        }
        if !shared.columns {
            validate_columns(version, &at, errors);
        }
        if !shared.selectable {
            // Without a schema of its own the version has none at all for upstream.
            let schema = find_schema(version).filter(|_| !shared.schema);
            let many = options.allows_many_selectable_fields(version);
            let missing = "may only be set when `version.schema.openAPIV3Schema` is not included";
            validate_selectable_fields(version, schema, many, [missing, "schema"], &at, errors);
        }
    }
}

fn validate_version_list(versions: &[Value], path: &Path<'_>, errors: &mut Errors) {
    let at = path.child("versions");
    let names: HashSet<&str> = versions.iter().map(|v| text(v, "name")).collect();
    if names.len() < versions.len() {
        errors.invalid(&at, versions.to_vec(), "must contain unique version names");
    }
    // New objects are written in one version.
    if versions.iter().filter(|v| flag(v, "storage")).count() != 1 {
        let detail = "must have exactly one version marked as storage version";
        errors.invalid(&at, versions.to_vec(), detail);
    }
    // The first version has a field of its own in the older form.
    let first = versions
        .first()
        .map(|v| text(v, "name"))
        .unwrap_or_default();
    let problems = dns1035_label(first);
    if !first.is_empty() && !problems.is_empty() {
        errors.invalid(&path.child("version"), first, problems.join(","));
    }
}

fn validate_shared_fields(
    versions: &[Value],
    shared: &SharedFields,
    schema_options: SchemaOptions,
    options: &SpecOptions<'_>,
    errors: &mut Errors,
) {
    let path = Path::ROOT.child("spec");
    let Some(first) = versions.first() else {
        return;
    };
    if shared.schema {
        let status = versions.iter().any(has_status);
        validate_schema(
            first,
            status,
            schema_options,
            options.rule_history(first),
            &path.child("validation"),
            errors,
        );
    }
    if shared.subresources {
        let at = path.child("subresources");
        validate_subresources(get(first, "subresources"), &at, errors);
    }
    if shared.columns {
        validate_columns(first, &path, errors);
    }
    if shared.selectable {
        let schema = find_schema(first).filter(|_| shared.schema);
        let many = options.allows_many_selectable_fields(first);
        let missing = "may only be set when validations.schema is included";
        validate_selectable_fields(first, schema, many, [missing, "schema"], &path, errors);
    }
}

fn validate_schema(
    version: &Value,
    has_status: bool,
    options: SchemaOptions,
    history: RuleHistory<'_>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let Some(schema) = find_schema(version) else {
        return;
    };
    let options = SchemaOptions {
        has_status,
        ..options
    };
    let at = path.child("openAPIV3Schema").to_string();
    let at = FieldPath::start(&at);
    add_problems(
        check_schema(schema, options, history, &check_embedded_metadata, &at),
        errors,
    );
}
