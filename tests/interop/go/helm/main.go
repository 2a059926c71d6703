// Helm as a library: install, upgrade, rollback and uninstall of the chart in the folder `chart`, with a definition, one of
// its objects and a hook. Prints one line a check.
package main

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"ironclad/tests/interop/report"

	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/release"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
)

const (
	namespace = "helm-client"
	name      = "demo"
)

//go:embed chart
var files embed.FS

func loadFiles() ([]*loader.BufferedFile, error) {
	var found []*loader.BufferedFile
	err := fs.WalkDir(files, "chart", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		bytes, err := files.ReadFile(path)
		found = append(found, &loader.BufferedFile{Name: strings.TrimPrefix(path, "chart/"), Data: bytes})
		return err
	})
	return found, err
}

type cluster struct {
	client  kubernetes.Interface
	dynamic dynamic.Interface
}

// follows checks the objects of a revision.
func (c cluster) follows(ctx context.Context, text string, replicas int32, hook string) error {
	config, err := c.client.CoreV1().ConfigMaps(namespace).Get(ctx, name+"-text", metav1.GetOptions{})
	if err != nil {
		return err
	}
	before, err := c.client.CoreV1().ConfigMaps(namespace).Get(ctx, name+"-before", metav1.GetOptions{})
	if err != nil {
		return err
	}
	gadget, err := c.dynamic.Resource(schema.GroupVersionResource{Group: "chart.example.com", Version: "v1", Resource: "gadgets"}).
		Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	own, _, _ := unstructured.NestedString(gadget.Object, "spec", "text")
	size, _, _ := unstructured.NestedInt64(gadget.Object, "spec", "size")
	deployment, err := c.client.AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if config.Data["text"] != text || config.Data["policy"] != "true" || own != text || size != 3 || before.Data["revision"] != hook {
		return fmt.Errorf("config %v, hook %v, gadget %v", config.Data, before.Data, gadget.Object["spec"])
	}
	if ptr.Deref(deployment.Spec.Replicas, 0) != replicas || deployment.Status.ReadyReplicas != replicas {
		return fmt.Errorf("the Deployment is %s", describe(deployment))
	}
	return nil
}

func describe(deployment *appsv1.Deployment) string {
	return fmt.Sprintf("spec %d, ready %d", ptr.Deref(deployment.Spec.Replicas, 0), deployment.Status.ReadyReplicas)
}

func main() {
	report.Area = "interop/helm"
	config, err := clientcmd.BuildConfigFromFlags("", os.Args[1])
	report.Must("config", err)
	c := cluster{client: kubernetes.NewForConfigOrDie(config), dynamic: dynamic.NewForConfigOrDie(config)}
	ctx, cancel := context.WithTimeout(context.Background(), 280*time.Second)
	defer cancel()

	flags := genericclioptions.NewConfigFlags(false)
	flags.KubeConfig, flags.Namespace = ptr.To(os.Args[1]), ptr.To(namespace)
	flags.CacheDir = ptr.To(os.TempDir())
	helm := new(action.Configuration)
	report.Must("init", helm.Init(flags, namespace, "secrets", func(string, ...any) {}))
	sources, err := loadFiles()
	report.Must("files", err)
	chart, err := loader.LoadFiles(sources)
	report.Must("chart", err)

	install := action.NewInstall(helm)
	install.ReleaseName, install.Namespace, install.CreateNamespace = name, namespace, true
	install.Wait, install.Timeout = true, 90*time.Second
	_, err = install.RunWithContext(ctx, chart, nil)
	report.Must("install", err)
	report.Check("installed", c.follows(ctx, "first", 1, "1"))

	upgrade := action.NewUpgrade(helm)
	upgrade.Namespace, upgrade.Wait, upgrade.Timeout = namespace, true, 90*time.Second
	_, err = upgrade.RunWithContext(ctx, name, chart, map[string]any{"text": "second", "replicas": 2})
	report.Check("upgrade", err)
	report.Check("upgraded", c.follows(ctx, "second", 2, "2"))

	rollback := action.NewRollback(helm)
	rollback.Version, rollback.Wait, rollback.Timeout = 1, true, 90*time.Second
	report.Check("rollback", rollback.Run(name))
	report.Check("rolled-back", c.follows(ctx, "first", 1, "2"))

	history, err := action.NewHistory(helm).Run(name)
	if err == nil && (len(history) != 3 || history[2].Info.Status != release.StatusDeployed) {
		err = fmt.Errorf("%d revisions", len(history))
	}
	report.Check("history", err)

	uninstall := action.NewUninstall(helm)
	uninstall.Wait, uninstall.Timeout = true, 90*time.Second
	_, err = uninstall.Run(name)
	report.Check("uninstall", err)
	_, err = c.client.AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		err = fmt.Errorf("the Deployment is still there: %v", err)
	} else {
		err = nil
	}
	report.Check("uninstalled", err)
	definitions := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	report.Check("remove-definition", c.dynamic.Resource(definitions).Delete(ctx, "gadgets.chart.example.com", metav1.DeleteOptions{}))
	report.Check("remove-namespace", c.client.CoreV1().Namespaces().Delete(ctx, namespace, metav1.DeleteOptions{}))
	report.Finish()
}
