// Package groups works out which machines are to be kept apart.
package groups
