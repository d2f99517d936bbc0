// Package cloudinittest checks with a real YAML parser what instancecfg
// renders without one. It is a module of its own, so that the library does not
// depend on the parser.
package cloudinittest
