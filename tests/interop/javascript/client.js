// The JavaScript client (@kubernetes/client-node) against a running cluster: informer, watch, list pages, patches, server-side
// apply, custom resources, HEAD over HTTP/2. Prints one line a check.
//
//     node client.js KUBECONFIG
import assert from 'node:assert/strict';
import { once } from 'node:events';
import http2 from 'node:http2';
import * as k8s from '@kubernetes/client-node';

const NAMESPACE = 'javascript-client';
const GROUP = 'javascript.example.com';
const config = new k8s.KubeConfig();
config.loadFromFile(process.argv[2]);
const core = config.makeApiClient(k8s.CoreV1Api);
const custom = config.makeApiClient(k8s.CustomObjectsApi);
const definitions = config.makeApiClient(k8s.ApiextensionsV1Api);
const objects = k8s.KubernetesObjectApi.makeApiClient(config);
const patchAs = (type) => k8s.setHeaderOptions('Content-Type', type);

/** Waits until `condition` returns a true value; an error of it counts as false. */
async function until(condition, seconds = 60) {
  const end = Date.now() + seconds * 1000;
  for (let last; ; ) {
    try {
      last = await condition();
      if (last) return last;
    } catch (error) {
      last = error;
    }
    if (Date.now() > end) throw new Error(`not within ${seconds} s: ${condition}; last: ${last}`);
    await new Promise((done) => setTimeout(done, 100));
  }
}

const isNotFound = (request) => request().then(() => false, (error) => error.code === 404);
const configMap = (name, data) => ({ metadata: { name, labels: { test: 'informer' } }, data });

async function create() {
  await core.createNamespace({ body: { metadata: { name: NAMESPACE } } });
  await core.createNamespacedConfigMap({ namespace: NAMESPACE, body: { metadata: { name: 'one' }, data: { k: 'v' } } });
  const again = core.createNamespacedConfigMap({ namespace: NAMESPACE, body: { metadata: { name: 'one' } } });
  await assert.rejects(again, (error) => error.code === 409 && JSON.parse(error.body).reason === 'AlreadyExists');
}

async function pages() {
  const accounts = () => core.listNamespacedServiceAccount({ namespace: 'kube-system' });
  await until(async () => (await accounts()).items.length > 5);
  const names = [];
  let token;
  do {
    const page = await core.listNamespacedServiceAccount({ namespace: 'kube-system', limit: 5, _continue: token });
    assert(page.items.length <= 5);
    names.push(...page.items.map((item) => item.metadata.name));
    token = page.metadata._continue;
  } while (token);
  assert(names.length > 5 && new Set(names).size === names.length, `names: ${names}`);
}

async function informer() {
  const path = `/api/v1/namespaces/${NAMESPACE}/configmaps`;
  const labelSelector = 'test=informer';
  const list = () => core.listNamespacedConfigMap({ namespace: NAMESPACE, labelSelector });
  const seen = [];
  const cache = k8s.makeInformer(config, path, list, labelSelector);
  for (const verb of ['add', 'update', 'delete']) cache.on(verb, (object) => seen.push(`${verb} ${object.metadata.name}`));
  await core.createNamespacedConfigMap({ namespace: NAMESPACE, body: configMap('listed', { n: '1' }) });
  await cache.start();
  try {
    await core.createNamespacedConfigMap({ namespace: NAMESPACE, body: configMap('watched', { n: '1' }) });
    await until(() => seen.includes('add watched'));
    await core.replaceNamespacedConfigMap({ namespace: NAMESPACE, name: 'watched', body: configMap('watched', { n: '2' }) });
    await until(() => cache.get('watched', NAMESPACE)?.data.n === '2');
    await core.deleteNamespacedConfigMap({ namespace: NAMESPACE, name: 'watched' });
    await until(() => !cache.get('watched', NAMESPACE));
    assert.deepEqual(seen, ['add listed', 'add watched', 'update watched', 'delete watched']);
  } finally {
    await cache.stop();
  }
}

async function watchFromRevision() {
  const since = (await core.listNamespacedSecret({ namespace: NAMESPACE })).metadata.resourceVersion;
  await core.createNamespacedSecret({ namespace: NAMESPACE, body: { metadata: { name: 'past' }, stringData: { a: 'b' } } });
  await core.deleteNamespacedSecret({ namespace: NAMESPACE, name: 'past' });
  const seen = [];
  const query = { resourceVersion: since, timeoutSeconds: 10, allowWatchBookmarks: true };
  await new Promise((resolve, reject) => {
    new k8s.Watch(config)
      .watch(`/api/v1/namespaces/${NAMESPACE}/secrets`, query, (type, object) => seen.push([type, object.metadata.name]), resolve)
      .catch(reject);
  });
  const events = seen.filter(([type]) => type !== 'BOOKMARK');
  assert.deepEqual(events, [['ADDED', 'past'], ['DELETED', 'past']]);
}

async function patch() {
  const target = { namespace: NAMESPACE, name: 'one' };
  const rows = [
    [k8s.PatchStrategy.MergePatch, { data: { k: null, m: 'merge' } }, { m: 'merge' }],
    [k8s.PatchStrategy.StrategicMergePatch, { data: { s: 'strategic' } }, { m: 'merge', s: 'strategic' }],
    [k8s.PatchStrategy.JsonPatch, [{ op: 'remove', path: '/data/m' }], { s: 'strategic' }],
  ];
  for (const [type, body, expected] of rows) {
    const { data } = await core.patchNamespacedConfigMap({ ...target, body }, patchAs(type));
    assert.deepEqual(data, expected, type);
  }
}

async function apply() {
  const body = (data) => ({ apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'applied', namespace: NAMESPACE }, data });
  const applyAs = (manager, data, force) =>
    objects.patch(body(data), undefined, undefined, manager, force, k8s.PatchStrategy.ServerSideApply);
  const made = await applyAs('first', { shared: '1', own: '1' }, false);
  assert.deepEqual(made.metadata.managedFields.map((entry) => [entry.manager, entry.operation]), [['first', 'Apply']]);
  const isConflict = (error) => error.code === 409 && JSON.parse(error.body).details.causes[0].reason === 'FieldManagerConflict';
  await assert.rejects(applyAs('second', { shared: '2' }, false), isConflict);
  assert.equal((await applyAs('second', { shared: '2' }, true)).data.shared, '2');
  assert.deepEqual((await applyAs('first', {}, false)).data, { shared: '2' });
}

function definition() {
  const spec = { type: 'object', properties: { size: { type: 'integer', minimum: 1, _default: 3 } } };
  const status = { type: 'object', properties: { phase: { type: 'string' } } };
  return {
    metadata: { name: `boxes.${GROUP}` },
    spec: {
      group: GROUP,
      scope: 'Namespaced',
      names: { plural: 'boxes', singular: 'box', kind: 'Box' },
      versions: [{
        name: 'v1', served: true, storage: true, subresources: { status: {} },
        schema: { openAPIV3Schema: { type: 'object', properties: { spec, status } } },
      }],
    },
  };
}

async function customObjects() {
  await definitions.createCustomResourceDefinition({ body: definition() });
  const boxes = { group: GROUP, version: 'v1', namespace: NAMESPACE, plural: 'boxes' };
  const box = (spec) => ({ apiVersion: `${GROUP}/v1`, kind: 'Box', metadata: { name: 'one' }, spec });
  await until(() => custom.listNamespacedCustomObject(boxes));
  await assert.rejects(custom.createNamespacedCustomObject({ ...boxes, body: box({ size: 0 }) }), (error) => error.code === 422);
  assert.equal((await custom.createNamespacedCustomObject({ ...boxes, body: box({}) })).spec.size, 3);
  const one = { ...boxes, name: 'one' };
  const patched = await custom.patchNamespacedCustomObjectStatus({ ...one, body: { status: { phase: 'Ready' }, spec: { size: 9 } } },
    patchAs(k8s.PatchStrategy.MergePatch));
  assert.deepEqual([patched.spec.size, patched.status.phase], [3, 'Ready']);
  const applied = await objects.patch({ ...box({ size: 5 }), metadata: { name: 'one', namespace: NAMESPACE } }, undefined, undefined,
    'javascript', true, k8s.PatchStrategy.ServerSideApply);
  assert.equal(applied.spec.size, 5);
  await definitions.deleteCustomResourceDefinition({ name: `boxes.${GROUP}` });
  await until(() => isNotFound(() => custom.getNamespacedCustomObject(one)));
}

/** Sends HEAD over HTTP/2, where DATA in the response is a protocol error. */
async function head() {
  const tls = {};
  await config.applyToHTTPSOptions(tls);
  const session = http2.connect(config.getCurrentCluster().server, { ca: tls.ca, cert: tls.cert, key: tls.key });
  try {
    for (const path of ['/version', `/api/v1/namespaces/${NAMESPACE}`, '/none']) {
      const request = session.request({ ':method': 'HEAD', ':path': path });
      // Both at once: the response of HEAD may end before the code after an `await` runs.
      const [[headers]] = await Promise.all([once(request.resume(), 'response'), once(request, 'close')]);
      assert.equal(request.rstCode, http2.constants.NGHTTP2_NO_ERROR, path);
      assert.equal(headers[':status'], path === '/none' ? 404 : 200, path);
      assert(Number(headers['content-length']) > 0, path);
    }
  } finally {
    session.close();
  }
}

async function deleteNamespace() {
  await core.deleteNamespace({ name: NAMESPACE });
  await until(() => isNotFound(() => core.readNamespace({ name: NAMESPACE })), 60);
}

const CHECKS = {
  create, pages, informer, watch: watchFromRevision, patch, apply, 'custom-objects': customObjects, head, delete: deleteNamespace,
};
for (const [name, check] of Object.entries(CHECKS)) {
  const line = await check().then(() => `ok interop/javascript/${name}`,
    (error) => `FAIL interop/javascript/${name}: ${String(error.message ?? error).replaceAll('\n', ' ').slice(0, 600)}`);
  console.log(line);
  if (line.startsWith('FAIL')) process.exitCode = 1;
}
