// Package server starts further API servers with the flags of a running one.
package server

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Server is an API server on a port of its own.
type Server struct {
	// Address is host and port.
	Address string
	program string
	flags   []string
	log     string
	command *exec.Cmd
}

// New returns a server with the flags of the process, and these in addition. It advertises 192.0.2.NUMBER, and writes its log
// to the folder.
func New(pid, folder, name string, number int, flags ...string) (*Server, error) {
	program, err := os.Readlink("/proc/" + pid + "/exe")
	if err != nil {
		return nil, err
	}
	line, err := os.ReadFile("/proc/" + pid + "/cmdline")
	if err != nil {
		return nil, err
	}
	address, err := findPort(30_000 + number)
	if err != nil {
		return nil, err
	}
	all := []string{"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", address.Port),
		fmt.Sprintf("--advertise-address=192.0.2.%d", number)}
	all = append(all, flags...)
	given := map[string]bool{"--port-file": true}
	for _, flag := range all {
		name, _, _ := strings.Cut(flag, "=")
		given[name] = true
	}
	for _, flag := range strings.Split(strings.TrimRight(string(line), "\x00"), "\x00")[1:] {
		if name, _, _ := strings.Cut(flag, "="); !given[name] {
			all = append(all, flag)
		}
	}
	log := filepath.Join(folder, fmt.Sprintf("%s-%d.log", name, number))
	return &Server{program: program, flags: all, Address: address.String(), log: log}, nil
}

// findPort returns an address that is free at the moment, from this port on. The kernel takes the ports of connections from 32768
// on: a connection could have the port of a server that is restarted.
func findPort(first int) (*net.TCPAddr, error) {
	for port := first; port < 32_768; port += 10 {
		if listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			defer listener.Close()
			return listener.Addr().(*net.TCPAddr), nil
		}
	}
	return nil, fmt.Errorf("there is no free port from %d on", first)
}

// Start starts the process.
func (s *Server) Start() error {
	log, err := os.OpenFile(s.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	s.command = exec.Command(s.program, s.flags...)
	s.command.Stdout, s.command.Stderr = log, log
	return s.command.Start()
}

// Stop sends the stop signal and waits for the end of the process.
func (s *Server) Stop() error {
	if err := s.command.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- s.command.Wait() }()
	select {
	case err := <-ended:
		return err
	case <-time.After(60 * time.Second):
		s.command.Process.Kill()
		return fmt.Errorf("the server at %s did not end within 60 s", s.Address)
	}
}

// Kill ends the process if it runs.
func (s *Server) Kill() {
	if s.command != nil && s.command.ProcessState == nil {
		s.command.Process.Kill()
		s.command.Wait()
	}
}
