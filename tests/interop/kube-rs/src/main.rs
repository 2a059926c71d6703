//! An operator on kube-rs: a derived CustomResourceDefinition, `Controller` with owned objects, server-side apply, status,
//! finalizer, and a watcher on streaming lists. Prints one line a check.
//!
//!     kube-operator KUBECONFIG

use std::{collections::BTreeMap, process::ExitCode, sync::Arc, time::Duration};

use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::controller::Action;
use kube::runtime::finalizer::{self, finalizer};
use kube::runtime::wait::{await_condition, conditions};
use kube::runtime::{Controller, watcher};
use kube::{Api, Client, CustomResource, CustomResourceExt, Resource, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

const NAMESPACE: &str = "kube-rs-operator";
const MANAGER: &str = "garden-operator";
type Failure = Box<dyn std::error::Error + Send + Sync>;

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "kube-rs.example.com",
    version = "v1",
    kind = "Garden",
    namespaced,
    shortname = "gd"
)]
#[kube(
    status = "GardenStatus",
    printcolumn(name = "Beds", type_ = "integer", json_path = ".spec.beds")
)]
struct GardenSpec {
    /// Number of beds.
    #[schemars(range(min = 1, max = 9))]
    beds: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    plant: Option<Plant>,
}

#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
enum Plant {
    Rose,
    Tulip,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
struct GardenStatus {
    beds: u32,
}

/// Applies the ConfigMap of a garden, and its status.
async fn apply_garden(garden: Arc<Garden>, client: &Client) -> Result<Action, kube::Error> {
    let (name, options) = (garden.name_any(), PatchParams::apply(MANAGER).force());
    let data = BTreeMap::from([("beds".to_owned(), garden.spec.beds.to_string())]);
    let mut made = ConfigMap {
        data: Some(data),
        ..ConfigMap::default()
    };
    made.metadata.name = Some(name.clone());
    made.metadata.owner_references = garden.controller_owner_ref(&()).map(|owner| vec![owner]);
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    maps.patch(&name, &options, &Patch::Apply(&made)).await?;
    let status = serde_json::json!({
        "apiVersion": Garden::api_version(&()), "kind": Garden::kind(&()), "status": GardenStatus { beds: garden.spec.beds },
    });
    let gardens: Api<Garden> = Api::namespaced(client.clone(), NAMESPACE);
    gardens
        .patch_status(&name, &options, &Patch::Apply(&status))
        .await?;
    Ok(Action::await_change())
}

/// Leaves a ConfigMap that shows that the finalizer ran.
async fn clean_up(garden: Arc<Garden>, client: &Client) -> Result<Action, kube::Error> {
    let mut made = ConfigMap::default();
    made.metadata.name = Some(format!("{}-deleted", garden.name_any()));
    Api::namespaced(client.clone(), NAMESPACE)
        .create(&PostParams::default(), &made)
        .await?;
    Ok(Action::await_change())
}

async fn reconcile(
    garden: Arc<Garden>,
    client: Arc<Client>,
) -> Result<Action, finalizer::Error<kube::Error>> {
    let gardens: Api<Garden> = Api::namespaced((*client).clone(), NAMESPACE);
    finalizer(
        &gardens,
        "kube-rs.example.com/garden",
        garden,
        |event| async {
            match event {
                finalizer::Event::Apply(garden) => apply_garden(garden, &client).await,
                finalizer::Event::Cleanup(garden) => clean_up(garden, &client).await,
            }
        },
    )
    .await
}

/// Runs the controller until the program ends.
async fn run_controller(client: Client) {
    let gardens: Api<Garden> = Api::namespaced(client.clone(), NAMESPACE);
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let retry = |_: Arc<Garden>, error: &finalizer::Error<kube::Error>, _: Arc<Client>| {
        eprintln!("reconcile: {error}");
        Action::requeue(Duration::from_secs(1))
    };
    Controller::new(gardens, watcher::Config::default())
        .owns(maps, watcher::Config::default())
        .run(reconcile, retry, Arc::new(client))
        .for_each(|_| async {})
        .await;
}

fn garden(name: &str, beds: u32) -> Garden {
    Garden::new(name, GardenSpec { beds, plant: None })
}

/// Waits until the ConfigMap `name` has the number of beds.
async fn await_beds(client: &Client, name: &str, beds: &str) -> Result<(), Failure> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let has_beds = |map: Option<&ConfigMap>| {
        map.and_then(|map| map.data.as_ref()?.get("beds"))
            .is_some_and(|found| found == beds)
    };
    await_condition(maps, name, has_beds).await?;
    Ok(())
}

async fn check_definition(client: &Client) -> Result<(), Failure> {
    let mut namespace = Namespace::default();
    namespace.metadata.name = Some(NAMESPACE.into());
    Api::all(client.clone())
        .create(&PostParams::default(), &namespace)
        .await?;
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let name = Garden::crd_name();
    definitions
        .patch(
            name,
            &PatchParams::apply(MANAGER),
            &Patch::Apply(Garden::crd()),
        )
        .await?;
    await_condition(definitions, name, conditions::is_crd_established()).await?;
    Ok(())
}

async fn check_schema(client: &Client) -> Result<(), Failure> {
    let gardens: Api<Garden> = Api::namespaced(client.clone(), NAMESPACE);
    match gardens
        .create(&PostParams::default(), &garden("wrong", 10))
        .await
    {
        Err(kube::Error::Api(status)) if status.code == 422 && status.reason == "Invalid" => Ok(()),
        other => Err(format!("an object outside of the range: {other:?}").into()),
    }
}

async fn check_reconcile(client: &Client) -> Result<(), Failure> {
    let gardens: Api<Garden> = Api::namespaced(client.clone(), NAMESPACE);
    gardens
        .create(&PostParams::default(), &garden("one", 2))
        .await?;
    await_beds(client, "one", "2").await?;
    let is_written = |found: Option<&Garden>| {
        found
            .and_then(|garden| garden.status.as_ref())
            .is_some_and(|status| status.beds == 2)
    };
    await_condition(gardens, "one", is_written).await?;
    Ok(())
}

async fn check_update(client: &Client) -> Result<(), Failure> {
    let gardens: Api<Garden> = Api::namespaced(client.clone(), NAMESPACE);
    let change = serde_json::json!({"spec": {"beds": 5, "plant": Plant::Rose}});
    gardens
        .patch("one", &PatchParams::default(), &Patch::Merge(&change))
        .await?;
    await_beds(client, "one", "5").await
}

/// The controller is notified of the deletion of an owned object, and applies it again.
async fn check_owned(client: &Client) -> Result<(), Failure> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let first = maps.get("one").await?.uid();
    maps.delete("one", &DeleteParams::default()).await?;
    let is_replaced = |map: Option<&ConfigMap>| map.is_some_and(|map| map.uid() != first);
    await_condition(maps, "one", is_replaced).await?;
    Ok(())
}

/// A streaming list sends the present objects, a bookmark, and then changes.
async fn check_streaming_list(client: &Client) -> Result<(), Failure> {
    let gardens: Api<Garden> = Api::namespaced(client.clone(), NAMESPACE);
    let mut events = Box::pin(watcher(
        gardens.clone(),
        watcher::Config::default().streaming_lists(),
    ));
    let mut seen = Vec::new();
    while !seen.ends_with(&["apply two".to_owned()]) {
        match events.next().await.ok_or("the watcher ended")?? {
            watcher::Event::Init => seen.push("init".into()),
            watcher::Event::InitApply(garden) => seen.push(format!("listed {}", garden.name_any())),
            watcher::Event::InitDone => {
                seen.push("listed all".into());
                gardens
                    .create(&PostParams::default(), &garden("two", 1))
                    .await?;
            }
            watcher::Event::Apply(garden) => seen.push(format!("apply {}", garden.name_any())),
            watcher::Event::Delete(garden) => seen.push(format!("delete {}", garden.name_any())),
        }
    }
    let expected = ["init", "listed one", "listed all", "apply two"];
    if seen == expected {
        Ok(())
    } else {
        Err(format!("events: {seen:?}").into())
    }
}

async fn check_finalizer(client: &Client) -> Result<(), Failure> {
    let gardens: Api<Garden> = Api::namespaced(client.clone(), NAMESPACE);
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let uid = maps.get("one").await?.uid().unwrap_or_default();
    kube::runtime::wait::delete::delete_and_finalize(gardens, "one", &DeleteParams::default())
        .await?;
    maps.get("one-deleted").await?;
    await_condition(maps, "one", conditions::is_deleted(&uid)).await?;
    Ok(())
}

async fn check_delete(client: &Client) -> Result<(), Failure> {
    let gardens: Api<Garden> = Api::namespaced(client.clone(), NAMESPACE);
    kube::runtime::wait::delete::delete_and_finalize(gardens, "two", &DeleteParams::default())
        .await?;
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    definitions
        .delete(Garden::crd_name(), &DeleteParams::default())
        .await?;
    Api::<Namespace>::all(client.clone())
        .delete(NAMESPACE, &DeleteParams::default())
        .await?;
    Ok(())
}

async fn connect() -> Result<Client, Failure> {
    let path = std::env::args()
        .nth(1)
        .ok_or("usage: kube-operator KUBECONFIG")?;
    let config = kube::Config::from_custom_kubeconfig(
        Kubeconfig::read_from(path)?,
        &KubeConfigOptions::default(),
    )
    .await?;
    Ok(Client::try_from(config)?)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let client = match connect().await {
        Ok(client) => client,
        Err(error) => {
            println!("FAIL interop/kube-rs/connect: {error}");
            return ExitCode::FAILURE;
        }
    };
    let mut failed = false;
    macro_rules! check {
        ($name:literal, $check:ident) => {
            let done = tokio::time::timeout(Duration::from_secs(60), $check(&client)).await;
            match done.unwrap_or_else(|_| Err("not within 60 s".into())) {
                Ok(()) => println!("ok interop/kube-rs/{}", $name),
                Err(error) => {
                    failed = true;
                    println!("FAIL interop/kube-rs/{}: {error}", $name);
                }
            }
        };
    }
    check!("definition", check_definition);
    let controller = tokio::spawn(run_controller(client.clone()));
    check!("schema", check_schema);
    check!("reconcile", check_reconcile);
    check!("update", check_update);
    check!("owned", check_owned);
    check!("streaming-list", check_streaming_list);
    check!("finalizer", check_finalizer);
    check!("delete", check_delete);
    controller.abort();
    if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}
