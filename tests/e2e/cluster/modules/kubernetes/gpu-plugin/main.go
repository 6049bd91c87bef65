// Command gpu-plugin PRETENDS that its node has GPUs. It is the one stand-in of the test cluster: a real kubelet device
// plugin (gRPC, API v1beta1) in front of no device. It advertises nvidia.com/gpu, and sets NVIDIA_VISIBLE_DEVICES in the
// containers that the kubelet gives devices to, as NVIDIA's plugin does. A device whose index is listed in the file
// <directory>/rightsizer-unhealthy-gpus is reported unhealthy, so that a test can break a GPU.
//
// usage: gpu-plugin DIRECTORY COUNT      (DIRECTORY: the kubelet's device-plugins directory)
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const (
	resource   = "nvidia.com/gpu"
	socketName = "rightsizer-pretended-gpu.sock"
	brokenName = "rightsizer-unhealthy-gpus"
	pollEvery  = 500 * time.Millisecond
)

type plugin struct {
	api.UnimplementedDevicePluginServer
	directory string
	count     int
}

func (p *plugin) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{}, nil
}

func (p *plugin) devices() []*api.Device {
	text, _ := os.ReadFile(filepath.Join(p.directory, brokenName)) // no file: all are healthy
	broken := strings.Fields(string(text))
	devices := make([]*api.Device, p.count)
	for i := range devices {
		health := api.Healthy
		if slices.Contains(broken, strconv.Itoa(i)) {
			health = api.Unhealthy
		}
		devices[i] = &api.Device{ID: strconv.Itoa(i), Health: health}
	}
	return devices
}

func (p *plugin) ListAndWatch(_ *api.Empty, stream api.DevicePlugin_ListAndWatchServer) error {
	said := ""
	for stream.Context().Err() == nil {
		devices := p.devices()
		if now := fmt.Sprint(devices); now != said {
			if err := stream.Send(&api.ListAndWatchResponse{Devices: devices}); err != nil {
				return err
			}
			said = now
		}
		time.Sleep(pollEvery)
	}
	return stream.Context().Err()
}

func (p *plugin) Allocate(_ context.Context, request *api.AllocateRequest) (*api.AllocateResponse, error) {
	response := &api.AllocateResponse{}
	for _, container := range request.ContainerRequests {
		ids := slices.Sorted(slices.Values(container.DevicesIds))
		response.ContainerResponses = append(response.ContainerResponses, &api.ContainerAllocateResponse{
			Envs: map[string]string{"NVIDIA_VISIBLE_DEVICES": strings.Join(ids, ",")},
		})
	}
	return response, nil
}

func (p *plugin) serve() (*grpc.Server, error) {
	socket := filepath.Join(p.directory, socketName)
	if err := os.RemoveAll(socket); err != nil {
		return nil, err
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return nil, err
	}
	server := grpc.NewServer()
	api.RegisterDevicePluginServer(server, p)
	go server.Serve(listener) //nolint:errcheck // ends with Stop
	return server, nil
}

func (p *plugin) register() error {
	connection, err := grpc.NewClient("unix://"+filepath.Join(p.directory, "kubelet.sock"),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	within, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_, err = api.NewRegistrationClient(connection).Register(within, &api.RegisterRequest{
		Version: api.Version, Endpoint: socketName, ResourceName: resource,
	})
	return err
}

// untilGone returns when the socket is gone: a kubelet that starts empties the directory, and wants to be told again.
func untilGone(socket string) {
	for {
		if _, err := os.Stat(socket); err != nil {
			return
		}
		time.Sleep(pollEvery)
	}
}

func main() {
	count, err := strconv.Atoi(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	p := &plugin{directory: os.Args[1], count: count}
	for ; ; time.Sleep(pollEvery) {
		server, err := p.serve()
		if err != nil {
			log.Print(err) // the kubelet has not made the directory yet
			continue
		}
		if err := p.register(); err != nil {
			log.Print(err) // the kubelet does not listen yet
			server.Stop()
			continue
		}
		log.Printf("registered %d pretended GPUs", count)
		untilGone(filepath.Join(p.directory, socketName))
		server.Stop()
	}
}
