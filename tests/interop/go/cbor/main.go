// A program on client-go with CBOR: typed and dynamic clients create, read, update, apply, list, watch and delete objects of a
// built-in kind and a custom resource, at an API server with the feature gate CBORServingAndStorage.
// Arguments: a kubeconfig, and the process ID of a running API server whose flags the other one gets. The environment switches
// CBOR on in client-go. Prints one line a check.
package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"time"

	"ironclad/tests/interop/report"
	"ironclad/tests/interop/server"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	coreapply "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/features"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const namespace = "cbor-clients"

var (
	definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	widgets     = schema.GroupVersionResource{Group: "cbor.example.com", Version: "v1", Resource: "widgets"}
)

// forms counts the media types of requests and responses.
type forms struct {
	next  http.RoundTripper
	mutex sync.Mutex
	seen  map[string]int
}

func (f *forms) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := f.next.RoundTrip(request)
	// The definition is not served at once, and until then the response is a text.
	if err != nil || !strings.HasPrefix(request.URL.Path, "/api") || response.StatusCode == http.StatusNotFound {
		return response, err
	}
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if request.Body != nil {
		f.seen["sent "+request.Header.Get("Content-Type")]++
	}
	f.seen["received "+response.Header.Get("Content-Type")]++
	return response, nil
}

// onlyCBOR checks that each of the forms was used, and no other.
func (f *forms) onlyCBOR(want ...string) error {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	expected := map[string]bool{}
	for _, form := range want {
		expected[form] = true
		if f.seen[form] == 0 {
			return fmt.Errorf("never %s: %v", form, f.seen)
		}
	}
	for form := range f.seen {
		if !expected[form] {
			return fmt.Errorf("unexpected: %v", f.seen)
		}
	}
	return nil
}

func newConfig(path, address string, counter *forms) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, err
	}
	config.Host, config.QPS = "https://"+address, -1
	// The typed clients of built-in kinds prefer protobuf.
	config.ContentType, config.AcceptContentTypes = "application/cbor", "application/cbor"
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		counter.next = next
		return counter
	})
	return config, nil
}

func equal(what string, got, want any) error {
	if !reflect.DeepEqual(got, want) {
		return fmt.Errorf("%s: %v instead of %v", what, got, want)
	}
	return nil
}

// useTyped uses a built-in kind whose values are bytes.
func useTyped(ctx context.Context, client kubernetes.Interface) {
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	_, err := client.CoreV1().Namespaces().Create(ctx, space, metav1.CreateOptions{})
	if !report.Check("typed/namespace", err) {
		return
	}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace))
	lister := factory.Core().V1().Secrets().Lister()
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())

	secrets := client.CoreV1().Secrets(namespace)
	binary := []byte{0, 0xff, 0xd9, 0xf7, 'a', 0x80}
	created, err := secrets.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"},
		Data: map[string][]byte{"k": binary, "empty": {}}}, metav1.CreateOptions{})
	if !report.Check("typed/create", err) {
		return
	}
	got, err := secrets.Get(ctx, "s", metav1.GetOptions{})
	if err == nil {
		err = equal("the object", got, created)
	}
	if err == nil && !bytes.Equal(got.Data["k"], binary) {
		err = fmt.Errorf("the value is %v", got.Data["k"])
	}
	report.Check("typed/get", err)
	got.Data["more"] = []byte("value")
	got, err = secrets.Update(ctx, got, metav1.UpdateOptions{})
	report.Check("typed/update", err)
	_, err = secrets.Update(ctx, created, metav1.UpdateOptions{})
	if !apierrors.IsConflict(err) {
		err = fmt.Errorf("a stale update answered %v", err)
	} else {
		err = nil
	}
	report.Check("typed/stale-update-conflicts", err)
	intent := coreapply.Secret("s", namespace).WithData(map[string][]byte{"applied": {1, 2, 3}})
	applied, err := secrets.Apply(ctx, intent, metav1.ApplyOptions{FieldManager: "applier"})
	if err == nil {
		err = equal("the number of values", len(applied.Data), 4)
	}
	report.Check("typed/apply", err)
	list, err := secrets.List(ctx, metav1.ListOptions{})
	if err == nil {
		err = equal("the list", list.Items, []corev1.Secret{*applied})
	}
	report.Check("typed/list", err)
	report.Check("typed/informer-sees-changes", report.Until(func() error {
		cached, err := lister.Secrets(namespace).Get("s")
		if err != nil {
			return err
		}
		return equal("the cached object", cached, applied)
	}))
	foreground := metav1.DeletePropagationForeground
	err = secrets.Delete(ctx, "s", metav1.DeleteOptions{PropagationPolicy: &foreground, Preconditions: metav1.NewUIDPreconditions(string(applied.UID))})
	report.Check("typed/delete", err)
}

// useDynamic uses a custom resource.
func useDynamic(ctx context.Context, client dynamic.Interface) {
	schema := map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
	definition := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "widgets.cbor.example.com"},
		"spec": map[string]any{"group": "cbor.example.com", "scope": "Namespaced",
			"names": map[string]any{"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
			"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": schema}}}}}}
	_, err := client.Resource(definitions).Create(ctx, definition, metav1.CreateOptions{})
	if !report.Check("dynamic/definition", err) {
		return
	}
	objects := client.Resource(widgets).Namespace(namespace)
	report.Check("dynamic/served", report.Until(func() error {
		_, err := objects.List(ctx, metav1.ListOptions{})
		return err
	}))
	spec := map[string]any{"integer": int64(1), "float": 1.5, "whole": 1.0, "text": "ü", "list": []any{true, nil, map[string]any{}},
		"time": "2026-01-02T03:04:05Z", "binary": "AAH/"}
	object := func(spec map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "cbor.example.com/v1", "kind": "Widget",
			"metadata": map[string]any{"name": "w"}, "spec": spec}}
	}
	created, err := objects.Create(ctx, object(spec), metav1.CreateOptions{})
	if !report.Check("dynamic/create", err) {
		return
	}
	report.Check("dynamic/values-keep-their-type", equal("the spec", created.Object["spec"], any(spec)))
	events, err := objects.Watch(ctx, metav1.ListOptions{ResourceVersion: created.GetResourceVersion()})
	if !report.Check("dynamic/watch", err) {
		return
	}
	defer events.Stop()
	got, err := objects.Get(ctx, "w", metav1.GetOptions{})
	if err == nil {
		err = equal("the object", got, created)
	}
	report.Check("dynamic/get", err)
	err = unstructured.SetNestedField(got.Object, int64(2), "spec", "integer")
	report.Check("dynamic/change", err)
	updated, err := objects.Update(ctx, got, metav1.UpdateOptions{})
	report.Check("dynamic/update", err)
	applied, err := objects.Apply(ctx, "w", object(map[string]any{"applied": 0.25}), metav1.ApplyOptions{FieldManager: "applier"})
	report.Check("dynamic/apply", err)
	_, err = objects.Apply(ctx, "w", object(map[string]any{"applied": int64(7)}), metav1.ApplyOptions{FieldManager: "other"})
	if !apierrors.IsConflict(err) {
		err = fmt.Errorf("the apply of an owned field answered %v", err)
	} else {
		err = nil
	}
	report.Check("dynamic/apply-conflicts", err)
	list, err := objects.List(ctx, metav1.ListOptions{})
	if err == nil {
		err = equal("the list", list.Items, []unstructured.Unstructured{*applied})
	}
	report.Check("dynamic/list", err)
	report.Check("dynamic/delete", objects.Delete(ctx, "w", metav1.DeleteOptions{}))
	for _, want := range []struct {
		kind   watch.EventType
		object *unstructured.Unstructured
	}{{watch.Modified, updated}, {watch.Modified, applied}, {watch.Deleted, nil}} {
		select {
		case event := <-events.ResultChan():
			err = equal("the event", event.Type, want.kind)
			if err == nil && want.object != nil {
				err = equal("the object of the event", event.Object, any(want.object))
			}
		case <-time.After(60 * time.Second):
			err = fmt.Errorf("no event within 60 s")
		}
		report.Check("dynamic/event-"+strings.ToLower(string(want.kind)), err)
	}
	report.Check("dynamic/delete-definition", client.Resource(definitions).Delete(ctx, "widgets.cbor.example.com", metav1.DeleteOptions{}))
}

func main() {
	report.Area = "interop/cbor"
	if gates := features.FeatureGates(); !gates.Enabled(features.ClientsAllowCBOR) || !gates.Enabled(features.ClientsPreferCBOR) {
		report.Must("environment", fmt.Errorf("CBOR is off in client-go"))
	}
	other, err := server.New(os.Args[2], filepath.Dir(os.Args[1]), "cbor", 9, "--feature-gates=CBORServingAndStorage=true")
	report.Must("flags", err)
	report.Must("start", other.Start())
	ctx, cancel := context.WithTimeout(context.Background(), 280*time.Second)
	defer cancel()
	counter := &forms{seen: map[string]int{}}
	config, err := newConfig(os.Args[1], other.Address, counter)
	if err == nil {
		client := kubernetes.NewForConfigOrDie(config)
		err = report.Until(func() error { return client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error() })
	}
	if report.Check("ready", err) {
		useTyped(ctx, kubernetes.NewForConfigOrDie(config))
		useDynamic(ctx, dynamic.NewForConfigOrDie(config))
		report.Check("nothing-but-cbor", counter.onlyCBOR("sent application/cbor", "sent application/apply-patch+cbor",
			"received application/cbor", "received application/cbor-seq"))
	}
	report.Check("stop", other.Stop())
	report.Finish()
}
