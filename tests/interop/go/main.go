// A program on client-go's shared informers, protobuf as Go clients have it by default, with WatchList: creates, patches
// and deletes objects and checks that the informer's cache follows. Prints one line a check.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

const namespace = "go-client"

var failed = false

func check(name string, err error) {
	if err != nil {
		failed = true
		fmt.Printf("FAIL interop/go/%s: %v\n", name, err)
		return
	}
	fmt.Printf("ok interop/go/%s\n", name)
}

// until polls a condition of the local cache (no request is made) until it holds or 60 seconds are over.
func until(what string, condition func() bool) error {
	for end := time.Now().Add(60 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if condition() {
			return nil
		}
	}
	return fmt.Errorf("not within 60 s: %s", what)
}

func main() {
	config, err := clientcmd.BuildConfigFromFlags("", os.Args[1])
	if err != nil {
		fmt.Println("FAIL interop/go/config:", err)
		os.Exit(1)
	}
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	client := kubernetes.NewForConfigOrDie(config)
	ctx, cancel := context.WithTimeout(context.Background(), 240*time.Second)
	defer cancel()

	_, err = client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	check("create-namespace", err)

	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace))
	maps := factory.Core().V1().ConfigMaps()
	maps.Informer()
	factory.Start(ctx.Done())
	synced := factory.WaitForCacheSync(ctx.Done())
	for kind, ok := range synced {
		if !ok {
			err = fmt.Errorf("%v never synced", kind)
		}
	}
	check("informer-syncs", err)

	generated, err := client.CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "made-"}, Data: map[string]string{"k": "v"}}, metav1.CreateOptions{})
	check("create-with-generate-name", err)
	if err != nil {
		os.Exit(1)
	}
	name := generated.Name
	check("informer-sees-create", until("the new object", func() bool {
		got, err := maps.Lister().ConfigMaps(namespace).Get(name)
		return err == nil && got.Data["k"] == "v" && got.ResourceVersion == generated.ResourceVersion
	}))

	_, err = client.CoreV1().ConfigMaps(namespace).Patch(ctx, name, types.StrategicMergePatchType, []byte(`{"data":{"k":"w"}}`), metav1.PatchOptions{})
	check("patch", err)
	check("informer-sees-patch", until("the patched object", func() bool {
		got, err := maps.Lister().ConfigMaps(namespace).Get(name)
		return err == nil && got.Data["k"] == "w"
	}))

	_, err = client.CoreV1().ConfigMaps(namespace).Update(ctx, generated, metav1.UpdateOptions{})
	if !apierrors.IsConflict(err) {
		err = fmt.Errorf("a stale update answered %v", err)
	} else {
		err = nil
	}
	check("stale-update-conflicts", err)

	check("delete", client.CoreV1().ConfigMaps(namespace).Delete(ctx, name, metav1.DeleteOptions{}))
	check("informer-sees-delete", until("the deletion", func() bool {
		_, err := maps.Lister().ConfigMaps(namespace).Get(name)
		return apierrors.IsNotFound(err)
	}))
	check("delete-namespace", client.CoreV1().Namespaces().Delete(ctx, namespace, metav1.DeleteOptions{}))
	if failed {
		os.Exit(1)
	}
}
