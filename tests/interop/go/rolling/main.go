// A rolling restart of three API servers under load: clients on HTTP/2 and HTTP/1.1 behind a load balancer write, read and
// watch while each server in turn is stopped and started. No request may fail, and the informers must see each object that remains.
// Arguments: a kubeconfig, and the process ID of a running API server whose flags the three get. Prints one line a check.
package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"ironclad/tests/interop/report"
	"ironclad/tests/interop/server"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	namespace = "rolling-restart"
	servers   = 3
	// Workers for each protocol.
	workers = 4
)

// newServers returns the servers with the flags of the process.
func newServers(pid, folder string) ([]*server.Server, error) {
	var all []*server.Server
	for number := range servers {
		one, err := server.New(pid, folder, "rolling", number+1, "--shutdown-delay-duration=2s")
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

// balancer passes connections to the servers that are ready, in turn, like a load balancer at the level of TCP.
type balancer struct {
	servers []*server.Server
	ready   [servers]atomic.Bool
	next    atomic.Uint64
}

// check reads /readyz of each server every 100 milliseconds.
func (b *balancer) check(ctx context.Context, clients []kubernetes.Interface) {
	for ; ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
		for at, client := range clients {
			// A busy server is ready as well: without any server, requests would fail.
			request, cancel := context.WithTimeout(ctx, 5*time.Second)
			err := client.Discovery().RESTClient().Get().AbsPath("/readyz").MaxRetries(0).Do(request).Error()
			cancel()
			b.ready[at].Store(err == nil)
		}
	}
}

func (b *balancer) serve(listener net.Listener) {
	for {
		inbound, err := listener.Accept()
		if err != nil {
			return
		}
		go b.connect(inbound)
	}
}

func (b *balancer) connect(inbound net.Conn) {
	defer inbound.Close()
	first := b.next.Add(1)
	for offset := range uint64(servers) {
		at := (first + offset) % servers
		if !b.ready[at].Load() {
			continue
		}
		outbound, err := net.Dial("tcp", b.servers[at].Address)
		// A server that has just closed its port: the next one.
		if err != nil {
			continue
		}
		defer outbound.Close()
		var both sync.WaitGroup
		both.Add(2)
		go copyBytes(outbound.(*net.TCPConn), inbound.(*net.TCPConn), &both)
		go copyBytes(inbound.(*net.TCPConn), outbound.(*net.TCPConn), &both)
		both.Wait()
		return
	}
}

func copyBytes(to, from *net.TCPConn, both *sync.WaitGroup) {
	defer both.Done()
	to.ReadFrom(from)
	to.CloseWrite()
}

// load is what the clients of one protocol do and see.
type load struct {
	client   kubernetes.Interface
	requests atomic.Int64
	mutex    sync.Mutex
	failures []string
	kept     map[types.UID]bool
	seen     map[types.UID]bool
}

func (l *load) done(what string, err error) bool {
	l.requests.Add(1)
	if err == nil {
		return true
	}
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.failures = append(l.failures, fmt.Sprintf("%s %s: %v", time.Now().Format("15:04:05.000"), what, err))
	return false
}

// work creates, reads, changes and deletes objects until the context ends.
func (l *load) work(ctx context.Context, prefix string) {
	maps := l.client.CoreV1().ConfigMaps(namespace)
	// Requests have a context of their own: one that has begun is completed.
	all := context.Background()
	for number := 0; ctx.Err() == nil; number++ {
		name := fmt.Sprintf("%s-%d", prefix, number)
		object, err := maps.Create(all, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if !l.done("create", err) {
			continue
		}
		// An informer that has to list again sees no object that was deleted meanwhile.
		isKept := number%2 == 0
		if isKept {
			l.mutex.Lock()
			l.kept[object.UID] = true
			l.mutex.Unlock()
		}
		object.Data = map[string]string{"changed": "once"}
		_, err = maps.Update(all, object, metav1.UpdateOptions{})
		l.done("update", err)
		_, err = maps.Patch(all, name, types.MergePatchType, []byte(`{"data":{"changed":"twice"}}`), metav1.PatchOptions{})
		l.done("patch", err)
		read, err := maps.Get(all, name, metav1.GetOptions{})
		if l.done("get", err) && read.Data["changed"] != "twice" {
			l.done("get", fmt.Errorf("an acknowledged change is missing: %v", read.Data))
		}
		_, err = maps.List(all, metav1.ListOptions{Limit: 5})
		l.done("list", err)
		if !isKept {
			l.done("delete", maps.Delete(all, name, metav1.DeleteOptions{}))
		}
	}
}

func (l *load) watch(ctx context.Context) cache.SharedIndexInformer {
	factory := informers.NewSharedInformerFactoryWithOptions(l.client, 0, informers.WithNamespace(namespace))
	informer := factory.Core().V1().ConfigMaps().Informer()
	informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(object any) {
		l.mutex.Lock()
		defer l.mutex.Unlock()
		l.seen[object.(*corev1.ConfigMap).UID] = true
	}})
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	return informer
}

// missed returns an error if the informer has not seen all objects that this load created and kept.
func (l *load) missed() error {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	missing := 0
	for uid := range l.kept {
		if !l.seen[uid] {
			missing++
		}
	}
	if missing > 0 {
		return fmt.Errorf("%d of %d objects were not seen", missing, len(l.kept))
	}
	return nil
}

func (l *load) failed() error {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if len(l.failures) > 0 {
		return fmt.Errorf("%d of %d requests failed, first: %s", len(l.failures), l.requests.Load(), l.failures[0])
	}
	if l.requests.Load() == 0 {
		return fmt.Errorf("no request was sent")
	}
	return nil
}

func newLoad(config *rest.Config, host string, protocols ...string) *load {
	config = rest.CopyConfig(config)
	config.Host, config.QPS = host, -1
	config.TLSClientConfig.NextProtos = protocols
	config.ContentType = "application/vnd.kubernetes.protobuf"
	return &load{client: kubernetes.NewForConfigOrDie(config), kept: map[types.UID]bool{}, seen: map[types.UID]bool{}}
}

func main() {
	report.Area = "interop/rolling"
	config, err := clientcmd.BuildConfigFromFlags("", os.Args[1])
	report.Must("config", err)
	all, err := newServers(os.Args[2], filepath.Dir(os.Args[1]))
	report.Must("flags", err)
	// os.Exit runs no deferred call.
	finish := func() {
		for _, server := range all {
			server.Kill()
		}
		report.Finish()
	}
	balancer := &balancer{servers: all}
	var direct []kubernetes.Interface
	for _, server := range all {
		if !report.Check("start", server.Start()) {
			finish()
		}
		direct = append(direct, newLoad(config, "https://"+server.Address).client)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	report.Must("balancer", err)
	running, stop := context.WithCancel(context.Background())
	go balancer.check(running, direct)
	go balancer.serve(listener)
	ready := func(at int) error {
		return report.Until(func() error {
			if !balancer.ready[at].Load() {
				return fmt.Errorf("the server at %s is not ready", all[at].Address)
			}
			return nil
		})
	}
	for at := range all {
		if !report.Check("ready", ready(at)) {
			finish()
		}
	}

	host := "https://" + listener.Addr().String()
	loads := map[string]*load{"http2": newLoad(config, host), "http1": newLoad(config, host, "http/1.1")}
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	_, err = loads["http2"].client.CoreV1().Namespaces().Create(running, space, metav1.CreateOptions{})
	if !report.Check("namespace", err) {
		finish()
	}
	working, end := context.WithCancel(running)
	stores := map[string]cache.SharedIndexInformer{}
	var busy sync.WaitGroup
	for protocol, load := range loads {
		stores[protocol] = load.watch(running)
		for number := range workers {
			busy.Add(1)
			go func() {
				defer busy.Done()
				load.work(working, fmt.Sprintf("%s-%d", protocol, number))
			}()
		}
	}
	for at, server := range all {
		report.Check("stop", server.Stop())
		balancer.ready[at].Store(false)
		report.Check("restart", server.Start())
		report.Check("ready-again", ready(at))
	}
	end()
	busy.Wait()
	for protocol, load := range loads {
		report.Check(protocol+"/no-request-fails", load.failed())
		report.Check(protocol+"/informer-sees-each-object", report.Until(load.missed))
		list, err := load.client.CoreV1().ConfigMaps(namespace).List(running, metav1.ListOptions{})
		report.Check(protocol+"/informer-agrees-with-list", err)
		if err == nil {
			report.Check(protocol+"/informer-has-no-other-object", report.Until(func() error {
				if cached := len(stores[protocol].GetStore().List()); cached != len(list.Items) {
					return fmt.Errorf("%d objects in the informer, %d in the list", cached, len(list.Items))
				}
				return nil
			}))
		}
	}
	stop()
	for _, server := range all {
		report.Check("end", server.Stop())
	}
	finish()
}
