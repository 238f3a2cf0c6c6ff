package main

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
)

const provisionedBy = "pv.kubernetes.io/provisioned-by"

// A provisioner makes one folder a claim, which any number of pods may write at once, whoever they run as.
type provisioner struct {
	client kubernetes.Interface
	claims listers.PersistentVolumeClaimLister
	held   listers.PersistentVolumeLister
	class  string
	folder string
	name   string
}

func newVolumesCommand() *cobra.Command {
	p := &provisioner{}
	var kubeconfig string
	command := &cobra.Command{
		Use:   "volumes",
		Short: "a provisioner of ReadWriteMany volumes that are folders of this machine",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
			if err != nil {
				return err
			}
			if p.client, err = kubernetes.NewForConfig(config); err != nil {
				return err
			}
			return p.run(context.Background())
		},
	}
	command.Flags().StringVar(&kubeconfig, "kubeconfig", "", "how to reach the API server")
	command.Flags().StringVar(&p.folder, "folder", "", "where the volumes lie")
	command.Flags().StringVar(&p.class, "class", "", "the storage class whose claims to serve")
	command.Flags().StringVar(&p.name, "name", "", "the provisioner's name in that class")
	return command
}

// run looks at all claims and volumes whenever one changes, and once a minute in case something failed.
func (p *provisioner) run(ctx context.Context) error {
	factory := informers.NewSharedInformerFactory(p.client, time.Minute)
	claims, held := factory.Core().V1().PersistentVolumeClaims(), factory.Core().V1().PersistentVolumes()
	p.claims, p.held = claims.Lister(), held.Lister()
	changed := make(chan struct{}, 1)
	wake := func(any) {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	handler := cache.ResourceEventHandlerFuncs{AddFunc: wake, UpdateFunc: func(_, now any) { wake(now) }}
	for _, informer := range []cache.SharedIndexInformer{claims.Informer(), held.Informer()} {
		if _, err := informer.AddEventHandler(handler); err != nil {
			return err
		}
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	for range changed {
		p.reconcile(ctx)
	}
	return nil
}

func (p *provisioner) reconcile(ctx context.Context) {
	claims, _ := p.claims.List(labels.Everything())
	for _, claim := range claims {
		class := claim.Spec.StorageClassName
		if class != nil && *class == p.class && claim.Status.Phase == core.ClaimPending && claim.Spec.VolumeName == "" {
			if err := p.provision(ctx, claim); err != nil {
				klog.ErrorS(err, "can't provision", "claim", klog.KObj(claim))
			}
		}
	}
	held, _ := p.held.List(labels.Everything())
	for _, volume := range held {
		if volume.Annotations[provisionedBy] == p.name && volume.Status.Phase == core.VolumeReleased &&
			volume.Spec.PersistentVolumeReclaimPolicy == core.PersistentVolumeReclaimDelete && volume.DeletionTimestamp == nil {
			if err := p.remove(ctx, volume); err != nil {
				klog.ErrorS(err, "can't remove", "volume", volume.Name)
			}
		}
	}
}

func (p *provisioner) provision(ctx context.Context, claim *core.PersistentVolumeClaim) error {
	name := "pvc-" + string(claim.UID)
	if _, err := p.held.Get(name); err == nil {
		return nil
	}
	path := filepath.Join(p.folder, name)
	if err := os.MkdirAll(path, 0o777); err != nil {
		return err
	}
	if err := os.Chmod(path, 0o777); err != nil { // whatever the umask
		return err
	}
	filesystem := core.PersistentVolumeFilesystem
	_, err := p.client.CoreV1().PersistentVolumes().Create(ctx, &core.PersistentVolume{
		ObjectMeta: meta.ObjectMeta{Name: name, Annotations: map[string]string{provisionedBy: p.name}},
		Spec: core.PersistentVolumeSpec{
			AccessModes:                   claim.Spec.AccessModes,
			Capacity:                      core.ResourceList{core.ResourceStorage: claim.Spec.Resources.Requests[core.ResourceStorage]},
			ClaimRef:                      &core.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID},
			PersistentVolumeReclaimPolicy: core.PersistentVolumeReclaimDelete,
			PersistentVolumeSource:        core.PersistentVolumeSource{HostPath: &core.HostPathVolumeSource{Path: path}},
			StorageClassName:              p.class,
			VolumeMode:                    &filesystem,
		},
	}, meta.CreateOptions{})
	if errors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// remove takes the data first: a volume whose object is gone would leave a folder that nobody knows.
func (p *provisioner) remove(ctx context.Context, volume *core.PersistentVolume) error {
	if err := os.RemoveAll(filepath.Join(p.folder, volume.Name)); err != nil {
		return err
	}
	err := p.client.CoreV1().PersistentVolumes().Delete(ctx, volume.Name, meta.DeleteOptions{})
	if errors.IsNotFound(err) {
		return nil
	}
	return err
}
