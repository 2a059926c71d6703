package main

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	appsapply "k8s.io/client-go/applyconfigurations/apps/v1"
	coreapply "k8s.io/client-go/applyconfigurations/core/v1"
	metaapply "k8s.io/client-go/applyconfigurations/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

const finalizer = group + "/cleanup"

type reconciler struct {
	client.Client
	scheme *runtime.Scheme
	// finalized receives the names of sites whose finalizer was removed.
	finalized chan string
}

// Reconcile applies the Deployment of a site, and writes the site's status.
func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	site := &Site{}
	if err := r.Get(ctx, request.NamespacedName, site); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !site.DeletionTimestamp.IsZero() {
		if controllerutil.RemoveFinalizer(site, finalizer) {
			if err := r.Update(ctx, site); err != nil {
				return ctrl.Result{}, err
			}
			r.finalized <- site.Name
		}
		return ctrl.Result{}, nil
	}
	if controllerutil.AddFinalizer(site, finalizer) {
		return ctrl.Result{}, r.Update(ctx, site)
	}
	labels := map[string]string{"site": site.Name}
	container := coreapply.Container().WithName("web").WithImage(site.Spec.Image)
	apply := appsapply.Deployment(site.Name, site.Namespace).
		WithOwnerReferences(metaapply.OwnerReference().WithAPIVersion(storageVersion.String()).WithKind("Site").WithName(site.Name).
			WithUID(site.UID).WithController(true).WithBlockOwnerDeletion(true)).
		WithSpec(appsapply.DeploymentSpec().WithReplicas(*site.Spec.Replicas).
			WithSelector(metaapply.LabelSelector().WithMatchLabels(labels)).
			WithTemplate(coreapply.PodTemplateSpec().WithLabels(labels).WithSpec(coreapply.PodSpec().WithContainers(container))))
	if err := r.Apply(ctx, apply, client.FieldOwner("site-operator"), client.ForceOwnership); err != nil {
		return ctrl.Result{}, fmt.Errorf("apply: %w", err)
	}
	deployment := &appsv1.Deployment{}
	if err := r.Get(ctx, request.NamespacedName, deployment); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	before := copyOf(site)
	ready := metav1.Condition{Type: "Ready", Status: metav1.ConditionFalse, Reason: "Progressing", Message: "replicas are starting"}
	if deployment.Status.AvailableReplicas == *site.Spec.Replicas && deployment.Status.ObservedGeneration == deployment.Generation {
		ready.Status, ready.Reason, ready.Message = metav1.ConditionTrue, "Available", "all replicas are available"
	}
	ready.ObservedGeneration = site.Generation
	apimeta.SetStatusCondition(&site.Status.Conditions, ready)
	site.Status.ObservedGeneration, site.Status.Replicas = site.Generation, deployment.Status.Replicas
	site.Status.Selector = "site=" + site.Name
	return ctrl.Result{}, r.Status().Patch(ctx, site, client.MergeFrom(before))
}
