// A program on the typed clients of client-go, apiextensions and kube-aggregator, with protobuf both ways as Go
// controllers have it: creates, reads, lists, watches, updates, patches and deletes an object of every kind that has a
// typed client and is served. The kinds are found by reflection, so a kind without a sample fails. One line a kind.
package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
)

const (
	namespace = "typed-clients"
	label     = "interop.example.com/typed"
)

//go:embed samples.json
var samplesText string

// typedClient is one typed client, such as AppsV1().Deployments(namespace).
type typedClient struct {
	groupVersion string // as in the clientset's method: AppsV1
	kind         string
	value        reflect.Value
}

func (c typedClient) name() string { return c.groupVersion + "." + c.kind }

func (c typedClient) has(method string) bool { return c.value.MethodByName(method).IsValid() }

// call calls a method whose last result is an error.
func (c typedClient) call(method string, arguments ...any) (any, error) {
	in := make([]reflect.Value, len(arguments))
	for i, argument := range arguments {
		in[i] = reflect.ValueOf(argument)
	}
	out := c.value.MethodByName(method).Call(in)
	if err, _ := out[len(out)-1].Interface().(error); err != nil {
		return nil, fmt.Errorf("%s: %w", strings.ToLower(method), err)
	}
	return out[0].Interface(), nil
}

// typedClients lists the clients of a clientset for versions that the server serves.
func typedClients(clientset any, served map[string]bool) []typedClient {
	var all []typedClient
	versioned := regexp.MustCompile(`V\d+((alpha|beta)\d+)?$`)
	set := reflect.ValueOf(clientset)
	for i := range set.NumMethod() {
		method := set.Type().Method(i).Name
		if !versioned.MatchString(method) || !served[strings.ToLower(method)] {
			continue
		}
		group := set.Method(i).Call(nil)[0]
		for j := range group.NumMethod() {
			getter := group.Method(j)
			var arguments []reflect.Value
			switch {
			case group.Type().Method(j).Name == "RESTClient" || getter.Type().NumOut() != 1:
				continue
			case getter.Type().NumIn() == 1:
				arguments = []reflect.Value{reflect.ValueOf(namespace)}
			}
			client := getter.Call(arguments)[0]
			create := client.MethodByName("Create")
			if !create.IsValid() || create.Type().NumIn() != 3 || !client.MethodByName("Delete").IsValid() {
				continue // reviews and bindings have no life cycle
			}
			all = append(all, typedClient{method, create.Type().In(1).Elem().Name(), client})
		}
	}
	return all
}

// servedVersions lists group versions in the spelling of the clientset's methods, in lower case: appsv1.
func servedVersions(client kubernetes.Interface) (map[string]bool, error) {
	_, lists, err := client.Discovery().ServerGroupsAndResources()
	if err != nil {
		return nil, err
	}
	served := map[string]bool{}
	for _, list := range lists {
		group, version, found := strings.Cut(list.GroupVersion, "/")
		if !found {
			group, version = "core", list.GroupVersion
		}
		group = strings.Split(group, ".")[0]
		switch {
		case strings.HasPrefix(list.GroupVersion, "rbac."):
			group = "rbac"
		case strings.HasPrefix(list.GroupVersion, "internal."):
			group = "internal"
		}
		served[group+version] = true
	}
	return served, nil
}

// request returns a certificate request in PEM.
func request() (string, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", err
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "typed"}}, key)
	if err != nil {
		return "", err
	}
	return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})), nil
}

// sample returns a new object of a client's kind. Number tells several objects of one kind apart.
func sample(samples map[string]json.RawMessage, client typedClient, number int) (metav1.Object, error) {
	text, found := samples[client.kind]
	switch {
	case client.kind == "Event" && client.groupVersion == "CoreV1":
		text, found = samples["v1.Event"]
	case client.kind == "Event":
		text, found = samples["events.Event"]
	}
	if !found {
		return nil, errors.New("samples.json has no sample of this kind")
	}
	filled := strings.NewReplacer("NAMESPACE", namespace, "NUMBER", strconv.Itoa(number)).Replace(string(text))
	pointer := reflect.New(client.value.MethodByName("Create").Type().In(1).Elem())
	if err := json.Unmarshal([]byte(filled), pointer.Interface()); err != nil {
		return nil, err
	}
	var named struct{ Name string }
	if err := json.Unmarshal([]byte(filled), &named); err != nil {
		return nil, err
	}
	object := pointer.Interface().(metav1.Object)
	object.SetName(named.Name)
	if named.Name == "" {
		object.SetName(fmt.Sprintf("typed-%d", number))
	}
	object.SetLabels(map[string]string{label: "true"})
	return object, nil
}

// await waits for an event of this type for this object.
func await(events watch.Interface, wanted watch.EventType, name string) error {
	deadline := time.After(60 * time.Second)
	for {
		select {
		case event, open := <-events.ResultChan():
			if !open {
				return fmt.Errorf("the watch ended before %s", wanted)
			}
			object, ok := event.Object.(metav1.Object)
			if event.Type == watch.Error || !ok {
				return fmt.Errorf("the watch sent %s: %v", event.Type, event.Object)
			}
			if event.Type == wanted && object.GetName() == name {
				return nil
			}
		case <-deadline:
			return fmt.Errorf("the watch sent no %s within 60 s", wanted)
		}
	}
}

// update sets an annotation on the newest state and writes it, again where somebody else wrote in between.
func update(ctx context.Context, client typedClient, method, name, annotation string) error {
	for {
		current, err := client.call("Get", ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		object := current.(metav1.Object)
		annotations := object.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[annotation] = method
		object.SetAnnotations(annotations)
		_, err = client.call(method, ctx, object, metav1.UpdateOptions{})
		if !apierrors.IsConflict(err) {
			return err
		}
	}
}

// background is how typed clients of controllers delete: with a body, which is protobuf here.
func background() metav1.DeleteOptions {
	policy, grace := metav1.DeletePropagationBackground, int64(0)
	return metav1.DeleteOptions{PropagationPolicy: &policy, GracePeriodSeconds: &grace}
}

// gone waits until an object is not found: finalizers of controllers may hold it for a moment.
func gone(ctx context.Context, client typedClient, name string) error {
	for end := time.Now().Add(60 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if _, err := client.call("Get", ctx, name, metav1.GetOptions{}); apierrors.IsNotFound(err) {
			return nil
		}
	}
	return fmt.Errorf("%s is still there after 60 s", name)
}

// listed checks that a list holds an object of this name, and returns the list's revision.
func listed(ctx context.Context, client typedClient, name string) (string, error) {
	list, err := client.call("List", ctx, metav1.ListOptions{LabelSelector: label + "=true"})
	if err != nil {
		return "", err
	}
	items := reflect.ValueOf(list).Elem().FieldByName("Items")
	for i := range items.Len() {
		if items.Index(i).Addr().Interface().(metav1.Object).GetName() == name {
			return list.(metav1.ListInterface).GetResourceVersion(), nil
		}
	}
	return "", fmt.Errorf("the list of %d objects lacks %s", items.Len(), name)
}

// life takes one object through all verbs and a second one through deletecollection.
func life(ctx context.Context, client typedClient, samples map[string]json.RawMessage) error {
	object, err := sample(samples, client, 11)
	if err != nil {
		return err
	}
	name := object.GetName()
	if _, err := client.call("Create", ctx, object, metav1.CreateOptions{}); err != nil {
		return err
	}
	revision, err := listed(ctx, client, name)
	if err != nil {
		return err
	}
	options := metav1.ListOptions{LabelSelector: label + "=true", ResourceVersion: revision}
	stream, err := client.call("Watch", ctx, options)
	if err != nil {
		return err
	}
	events := stream.(watch.Interface)
	defer events.Stop()
	if err := update(ctx, client, "Update", name, "interop.example.com/update"); err != nil {
		return err
	}
	if err := await(events, watch.Modified, name); err != nil {
		return err
	}
	if client.has("UpdateStatus") {
		if err := update(ctx, client, "UpdateStatus", name, "interop.example.com/status"); err != nil {
			return err
		}
	}
	patch := []byte(`{"metadata":{"annotations":{"interop.example.com/patch":"yes"}}}`)
	if _, err := client.call("Patch", ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return err
	}
	if _, err := client.call("Delete", ctx, name, background()); err != nil {
		return err
	}
	// A namespace is deleted in two steps, the second of which is the controller's.
	if err := await(events, watch.Deleted, name); err != nil {
		return err
	}
	if !client.has("DeleteCollection") {
		return nil
	}
	second, err := sample(samples, client, 12)
	if err != nil {
		return err
	}
	if _, err := client.call("Create", ctx, second, metav1.CreateOptions{}); err != nil {
		return err
	}
	selected := metav1.ListOptions{LabelSelector: label + "=true"}
	if _, err := client.call("DeleteCollection", ctx, background(), selected); err != nil {
		return err
	}
	return gone(ctx, client, second.GetName())
}

func run(kubeconfig string) (failed bool, err error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return false, err
	}
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf"
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return false, err
	}
	served, err := servedVersions(client)
	if err != nil {
		return false, err
	}
	encoded, err := request()
	if err != nil {
		return false, err
	}
	samples := map[string]json.RawMessage{}
	if err := json.Unmarshal([]byte(strings.Replace(samplesText, "REQUEST", encoded, 1)), &samples); err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	own := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if _, err := client.CoreV1().Namespaces().Create(ctx, own, metav1.CreateOptions{}); err != nil {
		return false, err
	}
	clients := typedClients(client, served)
	clients = append(clients, typedClients(apiextensions.NewForConfigOrDie(config), served)...)
	clients = append(clients, typedClients(aggregator.NewForConfigOrDie(config), served)...)
	for _, typed := range clients {
		if typed.kind == "ComponentStatus" {
			continue // read-only
		}
		if err := life(ctx, typed, samples); err != nil {
			failed = true
			fmt.Printf("FAIL interop/typed/%s: %v\n", typed.name(), err)
			continue
		}
		fmt.Printf("ok interop/typed/%s\n", typed.name())
	}
	return failed, client.CoreV1().Namespaces().Delete(ctx, namespace, metav1.DeleteOptions{})
}

func main() {
	failed, err := run(os.Args[1])
	if err != nil {
		fmt.Println("FAIL interop/typed:", err)
	}
	if failed || err != nil {
		os.Exit(1)
	}
}
