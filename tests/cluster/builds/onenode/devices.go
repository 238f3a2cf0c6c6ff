package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"k8s.io/klog/v2"
	devices "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// A plugin pretends that the node has some devices of one kind. The kubelet finds its socket in the folder of
// plugins, again after each start of its own, and counts and hands out the devices as it would real ones.
type plugin struct {
	devices.UnimplementedDevicePluginServer
	registration.UnimplementedRegistrationServer
	resource string
	socket   string
	count    int
	watched  atomic.Int32 // by how many streams the kubelet follows the devices
}

func newDevicesCommand() *cobra.Command {
	var folder, health string
	var resources map[string]int
	command := &cobra.Command{
		Use:   "devices",
		Short: "a device plugin with devices that don't exist",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			ended := make(chan error)
			var all []*plugin
			for resource, count := range resources {
				socket := filepath.Join(folder, strings.ReplaceAll(resource, "/", "-")+".sock")
				p := &plugin{resource: resource, socket: socket, count: count}
				all = append(all, p)
				go func() { ended <- p.serve() }()
			}
			go func() { ended <- http.ListenAndServe(health, healthOf(all)) }()
			return <-ended
		},
	}
	command.Flags().StringVar(&folder, "folder", "/var/lib/kubelet/plugins_registry", "where the kubelet looks for plugins")
	command.Flags().StringVar(&health, "health", "", "ADDRESS:PORT at which to say whether the kubelet knows of all devices")
	command.Flags().StringToIntVar(&resources, "resource", nil, "NAME=COUNT, repeatable")
	return command
}

func healthOf(all []*plugin) http.HandlerFunc {
	return func(response http.ResponseWriter, _ *http.Request) {
		for _, p := range all {
			if p.watched.Load() == 0 {
				http.Error(response, p.resource+" is not registered", http.StatusServiceUnavailable)
				return
			}
		}
	}
}

func (p *plugin) serve() error {
	if err := os.Remove(p.socket); err != nil && !os.IsNotExist(err) {
		return err
	}
	listener, err := net.Listen("unix", p.socket)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	devices.RegisterDevicePluginServer(server, p)
	registration.RegisterRegistrationServer(server, p)
	return server.Serve(listener)
}

func (p *plugin) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type: registration.DevicePlugin, Name: p.resource, Endpoint: p.socket, SupportedVersions: []string{devices.Version},
	}, nil
}

func (p *plugin) NotifyRegistrationStatus(
	_ context.Context, status *registration.RegistrationStatus,
) (*registration.RegistrationStatusResponse, error) {
	klog.InfoS("registered with the kubelet", "resource", p.resource, "accepted", status.PluginRegistered, "error", status.Error)
	return &registration.RegistrationStatusResponse{}, nil
}

func (p *plugin) GetDevicePluginOptions(context.Context, *devices.Empty) (*devices.DevicePluginOptions, error) {
	return &devices.DevicePluginOptions{}, nil
}

// ListAndWatch tells the kubelet of the devices and then holds the stream: its end would mean that they are gone.
func (p *plugin) ListAndWatch(_ *devices.Empty, stream devices.DevicePlugin_ListAndWatchServer) error {
	all := make([]*devices.Device, p.count)
	for i := range all {
		all[i] = &devices.Device{ID: fmt.Sprint(i), Health: devices.Healthy}
	}
	if err := stream.Send(&devices.ListAndWatchResponse{Devices: all}); err != nil {
		return err
	}
	p.watched.Add(1)
	defer p.watched.Add(-1)
	<-stream.Context().Done()
	return nil
}

// Allocate gives a container nothing of the devices but their numbers, as a vendor's plugin does.
func (p *plugin) Allocate(_ context.Context, request *devices.AllocateRequest) (*devices.AllocateResponse, error) {
	variable := strings.ToUpper(strings.NewReplacer(".", "_", "/", "_", "-", "_").Replace(p.resource))
	response := &devices.AllocateResponse{}
	for _, container := range request.ContainerRequests {
		response.ContainerResponses = append(response.ContainerResponses, &devices.ContainerAllocateResponse{
			Envs: map[string]string{variable: strings.Join(container.DevicesIds, ",")},
		})
	}
	return response, nil
}
