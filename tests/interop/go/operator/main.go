// An operator on controller-runtime: a CustomResourceDefinition, a cached client, server-side apply, owner references,
// finalizers, admission webhooks on loopback and leader election. Prints one line a check.
package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"ironclad/tests/interop/report"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/yaml"
)

const namespace = "go-operator"

type warnings struct{ count atomic.Int32 }

func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	if strings.Contains(text, "many replicas") {
		w.count.Add(1)
	}
}

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme} {
		if err := add(scheme); err != nil {
			panic(err)
		}
	}
	scheme.AddKnownTypes(storageVersion, &Site{}, &SiteList{})
	metav1.AddToGroupVersion(scheme, storageVersion)
	return scheme
}

func install(ctx context.Context, c client.Client) error {
	if err := c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
		return err
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.Unmarshal([]byte(definition), crd); err != nil {
		return err
	}
	if err := c.Create(ctx, crd); err != nil {
		return err
	}
	return report.Until(func() error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(crd), crd); err != nil {
			return err
		}
		for _, condition := range crd.Status.Conditions {
			if condition.Type == apiextensionsv1.Established && condition.Status == apiextensionsv1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("the definition is not established: %v", crd.Status.Conditions)
	})
}

func startManager(ctx context.Context, config *rest.Config, scheme *runtime.Scheme) (ctrl.Manager, *reconciler, string, []byte, error) {
	directory, err := os.MkdirTemp(os.Getenv("WORK"), "operator")
	if err != nil {
		return nil, nil, "", nil, err
	}
	ca, err := report.WriteCertificate(directory, nil, []net.IP{net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, nil, "", nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, "", nil, err
	}
	port := listener.Addr().(*net.TCPAddr).Port
	_ = listener.Close()
	manager, err := ctrl.NewManager(config, ctrl.Options{Scheme: scheme, LeaderElection: true, LeaderElectionID: "site-operator",
		LeaderElectionNamespace: namespace, LeaderElectionReleaseOnCancel: true, Metrics: server.Options{BindAddress: "0"},
		WebhookServer: webhook.NewServer(webhook.Options{Host: "127.0.0.1", Port: port, CertDir: directory})})
	if err != nil {
		return nil, nil, "", nil, err
	}
	sites := &reconciler{Client: manager.GetClient(), scheme: scheme, finalized: make(chan string, 16)}
	if err := ctrl.NewControllerManagedBy(manager).For(&Site{}).Owns(&appsv1.Deployment{}).Complete(sites); err != nil {
		return nil, nil, "", nil, err
	}
	if err := ctrl.NewWebhookManagedBy(manager, &Site{}).WithDefaulter(hooks{}).WithValidator(hooks{}).Complete(); err != nil {
		return nil, nil, "", nil, err
	}
	return manager, sites, fmt.Sprintf("https://127.0.0.1:%d", port), ca, nil
}

func site(name string, replicas *int32) *Site {
	return &Site{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}, Spec: SiteSpec{Replicas: replicas}}
}

func main() {
	report.Area = "interop/operator"
	log.SetLogger(logr.Discard())
	config, err := clientcmd.BuildConfigFromFlags("", os.Args[1])
	report.Must("config", err)
	seen := &warnings{}
	config.WarningHandler = seen
	ctx, cancel := context.WithTimeout(context.Background(), 280*time.Second)
	defer cancel()
	scheme := newScheme()
	direct, err := client.New(config, client.Options{Scheme: scheme})
	report.Must("client", err)
	report.Must("definition", install(ctx, direct))

	managing, stop := context.WithCancel(ctx)
	manager, sites, base, ca, err := startManager(managing, config, scheme)
	report.Must("manager", err)
	manager.GetWebhookServer().Register("/convert-halls", http.HandlerFunc(convert))
	done := make(chan error, 1)
	go func() { done <- manager.Start(managing) }()
	select {
	case <-manager.Elected():
		report.Check("elected", nil)
	case err := <-done:
		report.Must("elected", fmt.Errorf("the manager ended: %v", err))
	case <-time.After(90 * time.Second):
		report.Must("elected", fmt.Errorf("not within 90 s"))
	}
	report.Check("lease", checkLease(ctx, direct))
	mutating, validating := configurations(base, ca)
	report.Must("webhooks", createAll(ctx, direct, mutating, validating))

	report.Must("webhooks-called", webhooksAreCalled(ctx, direct))
	report.Check("defaulted", defaulted(ctx, direct))
	report.Check("rejected", rejected(ctx, direct))
	report.Check("warned", warned(ctx, direct, seen))
	report.Check("deployment", deploymentFollows(ctx, direct))
	report.Check("status", statusFollows(ctx, direct))
	report.Check("restored", deploymentIsRestored(ctx, direct))
	report.Check("scale", scaleFollows(ctx, direct))
	report.Check("patches", patches(ctx, direct))
	report.Check("version", otherVersion(ctx, direct))
	report.Check("conversion", converted(ctx, direct, base, ca))
	report.Check("cache", cached(ctx, manager.GetClient()))
	report.Check("finalizer", finalized(ctx, direct, sites))
	stop()
	select {
	case err = <-done:
	case <-time.After(60 * time.Second):
		err = fmt.Errorf("the manager did not stop within 60 s")
	}
	report.Check("stopped", err)
	report.Check("lease-released", leaseIsReleased(ctx, direct))
	report.Check("removed", remove(ctx, direct, mutating, validating))
	report.Finish()
}

func createAll(ctx context.Context, c client.Client, objects ...client.Object) error {
	for _, object := range objects {
		if err := c.Create(ctx, object); err != nil {
			return err
		}
	}
	return nil
}

func checkLease(ctx context.Context, c client.Client) error {
	lease := &coordinationv1.Lease{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "site-operator"}, lease); err != nil {
		return err
	}
	if ptr.Deref(lease.Spec.HolderIdentity, "") == "" {
		return fmt.Errorf("the lease has no holder")
	}
	return nil
}

func leaseIsReleased(ctx context.Context, c client.Client) error {
	return report.Until(func() error {
		if err := checkLease(ctx, c); err == nil {
			return fmt.Errorf("the lease still has a holder")
		}
		return nil
	})
}

// webhooksAreCalled waits until the server knows the new configurations.
func webhooksAreCalled(ctx context.Context, c client.Client) error {
	return report.Until(func() error {
		probe := site("probe", nil)
		if err := c.Create(ctx, probe, client.DryRunAll); err != nil {
			return err
		}
		if probe.Spec.Image == "" {
			return fmt.Errorf("the mutating webhook was not called")
		}
		if err := c.Create(ctx, site("probe", ptr.To(int32(11))), client.DryRunAll); err == nil {
			return fmt.Errorf("the validating webhook was not called")
		}
		return nil
	})
}

func defaulted(ctx context.Context, c client.Client) error {
	made := site("one", nil)
	if err := c.Create(ctx, made); err != nil {
		return err
	}
	if ptr.Deref(made.Spec.Replicas, 0) != 2 || made.Spec.Image != "registry.example/web:1" || made.Generation != 1 {
		return fmt.Errorf("created as %+v", made)
	}
	return nil
}

func rejected(ctx context.Context, c client.Client) error {
	err := c.Create(ctx, site("many", ptr.To(int32(11))))
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "at most 10 replicas") {
		return fmt.Errorf("the webhook's error is %v", err)
	}
	forbidden := site("rule", nil)
	forbidden.Spec.Image = "forbidden"
	if err := c.Create(ctx, forbidden); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "that image is forbidden") {
		return fmt.Errorf("the rule's error is %v", err)
	}
	if err := c.Create(ctx, site("negative", ptr.To(int32(-1)))); !apierrors.IsInvalid(err) {
		return fmt.Errorf("the schema's error is %v", err)
	}
	return nil
}

func warned(ctx context.Context, c client.Client, seen *warnings) error {
	if err := c.Create(ctx, site("warned", ptr.To(int32(6))), client.DryRunAll); err != nil {
		return err
	}
	if seen.count.Load() == 0 {
		return fmt.Errorf("no warning was received")
	}
	return nil
}

func deploymentFollows(ctx context.Context, c client.Client) error {
	return report.Until(func() error {
		deployment := &appsv1.Deployment{}
		if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "one"}, deployment); err != nil {
			return err
		}
		owner := metav1.GetControllerOf(deployment)
		if owner == nil || owner.Kind != "Site" || *deployment.Spec.Replicas != 2 {
			return fmt.Errorf("owner %v, replicas %d", owner, *deployment.Spec.Replicas)
		}
		for _, entry := range deployment.ManagedFields {
			if entry.Manager == "site-operator" && entry.Operation == metav1.ManagedFieldsOperationApply {
				return nil
			}
		}
		return fmt.Errorf("no managed fields of the operator: %v", deployment.ManagedFields)
	})
}

func statusFollows(ctx context.Context, c client.Client) error {
	return report.Until(func() error {
		got := &Site{}
		if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "one"}, got); err != nil {
			return err
		}
		if !apimeta.IsStatusConditionTrue(got.Status.Conditions, "Ready") || got.Status.ObservedGeneration != got.Generation {
			return fmt.Errorf("status %+v of generation %d", got.Status, got.Generation)
		}
		if got.Generation != 1 {
			return fmt.Errorf("writes of status or metadata changed the generation to %d", got.Generation)
		}
		return nil
	})
}

func deploymentIsRestored(ctx context.Context, c client.Client) error {
	key := client.ObjectKey{Namespace: namespace, Name: "one"}
	deployment := &appsv1.Deployment{}
	if err := c.Get(ctx, key, deployment); err != nil {
		return err
	}
	uid := deployment.UID
	if err := c.Delete(ctx, deployment, client.PropagationPolicy(metav1.DeletePropagationForeground)); err != nil {
		return err
	}
	return report.Until(func() error {
		again := &appsv1.Deployment{}
		if err := c.Get(ctx, key, again); err != nil {
			return err
		}
		if again.UID == uid {
			return fmt.Errorf("the Deployment was not deleted: finalizers %v", again.Finalizers)
		}
		return nil
	})
}

func scaleFollows(ctx context.Context, c client.Client) error {
	one := site("one", nil)
	// The operator may write the status between the two requests.
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		scale := &autoscalingv1.Scale{}
		if err := c.SubResource("scale").Get(ctx, one, scale); err != nil {
			return err
		}
		if scale.Spec.Replicas != 2 || scale.Status.Selector != "site=one" {
			return fmt.Errorf("scale is %+v", scale)
		}
		scale.Spec.Replicas = 3
		return c.SubResource("scale").Update(ctx, one, client.WithSubResourceBody(scale))
	})
	if err != nil {
		return err
	}
	return report.Until(func() error {
		got := &appsv1.Deployment{}
		if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "one"}, got); err != nil {
			return err
		}
		if *got.Spec.Replicas != 3 {
			return fmt.Errorf("the Deployment has %d replicas", *got.Spec.Replicas)
		}
		return nil
	})
}

func patches(ctx context.Context, c client.Client) error {
	got := site("one", nil)
	for _, patch := range []client.Patch{
		client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"a":"merge"}}}`)),
		client.RawPatch("application/json-patch+json", []byte(`[{"op":"replace","path":"/metadata/annotations/a","value":"json"}]`)),
	} {
		if err := c.Patch(ctx, got, patch); err != nil {
			return fmt.Errorf("%s: %w", patch.Type(), err)
		}
	}
	if got.Annotations["a"] != "json" {
		return fmt.Errorf("annotations %v", got.Annotations)
	}
	strategic := client.RawPatch("application/strategic-merge-patch+json", []byte(`{"metadata":{"annotations":{"a":"b"}}}`))
	if err := c.Patch(ctx, got, strategic); !apierrors.IsUnsupportedMediaType(err) {
		return fmt.Errorf("a strategic merge patch returned %v", err)
	}
	stale := copyOf(got)
	stale.ResourceVersion = "1"
	if err := c.Update(ctx, stale); !apierrors.IsConflict(err) {
		return fmt.Errorf("a stale update returned %v", err)
	}
	return nil
}

func otherVersion(ctx context.Context, c client.Client) error {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: "v1beta1", Kind: "SiteList"})
	if err := c.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return err
	}
	if len(list.Items) != 1 || list.Items[0].GetAPIVersion() != group+"/v1beta1" {
		return fmt.Errorf("listed %v", list.Items)
	}
	return nil
}

// converted checks that a definition with a conversion webhook serves all of its versions.
func converted(ctx context.Context, c client.Client, base string, ca []byte) error {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	text := strings.NewReplacer("sites", "halls", "site", "hall", "Site", "Hall", "[st]", "[]", "[all]", "[]").Replace(definition)
	if err := yaml.Unmarshal([]byte(text), crd); err != nil {
		return err
	}
	crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.WebhookConverter,
		Webhook: &apiextensionsv1.WebhookConversion{ConversionReviewVersions: []string{"v1"},
			ClientConfig: &apiextensionsv1.WebhookClientConfig{URL: ptr.To(base + "/convert-halls"), CABundle: ca}}}
	if err := c.Create(ctx, crd); err != nil {
		return err
	}
	defer func() { _ = c.Delete(ctx, crd) }()
	hall := func(version string) *unstructured.Unstructured {
		object := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"image": version}}}
		object.SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: version, Kind: "Hall"})
		object.SetNamespace(namespace)
		object.SetName("hall")
		return object
	}
	if err := report.Until(func() error { return c.Create(ctx, hall("v1")) }); err != nil {
		return err
	}
	other := hall("v1beta1")
	err := c.Get(ctx, client.ObjectKeyFromObject(other), other)
	if err == nil && (other.GetAnnotations()["converted"] != "v1 to "+group+"/v1beta1" || other.GetAPIVersion() != group+"/v1beta1") {
		err = fmt.Errorf("read as %v", other.Object)
	}
	return err
}

func cached(ctx context.Context, c client.Client) error {
	return report.Until(func() error {
		list := &SiteList{}
		if err := c.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return err
		}
		if len(list.Items) != 1 || list.Items[0].Annotations["a"] != "json" {
			return fmt.Errorf("the cache has %d items", len(list.Items))
		}
		return nil
	})
}

func finalized(ctx context.Context, c client.Client, sites *reconciler) error {
	protect := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"protected":"true"}}}`))
	if err := c.Patch(ctx, site("one", nil), protect); err != nil {
		return err
	}
	if err := c.Delete(ctx, site("one", nil)); !apierrors.IsForbidden(err) {
		return fmt.Errorf("deletion of a protected site returned %v", err)
	}
	unprotect := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"protected":null}}}`))
	if err := c.Patch(ctx, site("one", nil), unprotect); err != nil {
		return err
	}
	if err := c.Delete(ctx, site("one", nil)); err != nil {
		return err
	}
	select {
	case name := <-sites.finalized:
		if name != "one" {
			return fmt.Errorf("finalized %q", name)
		}
	case <-time.After(60 * time.Second):
		return fmt.Errorf("the finalizer did not run within 60 s")
	}
	return report.Until(func() error {
		for _, object := range []client.Object{&Site{}, &appsv1.Deployment{}} {
			if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "one"}, object); !apierrors.IsNotFound(err) {
				return fmt.Errorf("%T is still there: %v", object, err)
			}
		}
		return nil
	})
}

func remove(ctx context.Context, c client.Client, objects ...client.Object) error {
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "sites." + group}}
	objects = append(objects, crd, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	for _, object := range objects {
		if err := c.Delete(ctx, object); err != nil {
			return err
		}
	}
	return report.Until(func() error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(crd), crd); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the definition is still there: %v", err)
		}
		return nil
	})
}
