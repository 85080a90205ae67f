//! Published JSON schemas, and checks of our files against them.

use std::fs;

use jsonschema::{Registry, Validator};
use serde_json::Value;

use super::tools::installed;

/// The mistakes of a value, one per line; none if it fits the schema.
fn mistakes(validator: &Validator, value: &Value) -> String {
    let mistake =
        |error: jsonschema::ValidationError<'_>| format!("{}: {error}\n", error.instance_path());
    validator.iter_errors(value).map(mistake).collect()
}

/// Whether a value fits a schema.
///
/// # Panics
/// When it is no schema.
pub fn fits(schema: &Value, value: &Value) -> bool {
    jsonschema::validator_for(schema).expect("a schema").is_valid(value)
}

fn read(path: &str) -> Value {
    serde_json::from_str(&fs::read_to_string(installed(path)).expect("it is text")).expect("JSON")
}

/// The mistakes according to the schema of Compose.
///
/// # Panics
/// When the schema is not installed.
pub fn mistakes_of_compose(file: &Value) -> String {
    let schema = read("compose-schema/compose-spec.json");
    mistakes(&jsonschema::validator_for(&schema).expect("a schema"), file)
}

/// The mistakes according to the schema of its kind in Kubernetes, including unknown fields.
///
/// # Panics
/// When the schemas are not installed, or have no such kind.
pub fn mistakes_of_manifest(manifest: &Value) -> String {
    let name = |field: &str| manifest[field].as_str().expect("apiVersion and kind").to_lowercase();
    let (version, kind) = (name("apiVersion"), name("kind"));
    // As in deployment-apps-v1 and networkpolicy-networking-v1: only the first part of the group's
    // name.
    let version = version.replace(".k8s.io", "").replace('/', "-");
    let schema = read(&format!("kubernetes-schemas/{kind}-{version}.json"));
    let definitions = read("kubernetes-schemas/_definitions.json");
    let id = definitions["$id"].as_str().expect("an id").to_owned();
    let registry = Registry::new().add(id, definitions);
    let registry = registry.and_then(jsonschema::RegistryBuilder::prepare).expect("definitions");
    let options = jsonschema::options().with_registry(&registry);
    mistakes(&options.build(&schema).expect("a schema"), manifest)
}
