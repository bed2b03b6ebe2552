// Package predict applies the network of a training run to new images, of any size and without labels:
//
//	p, err := predict.Open(ctx, "unet2d-cells/ddp-n2-s1")
//	r, err := p.File(ctx, "new/cell.png")
//	r.Mask()    // the values of the run's masks, such as 0 and 255
//	r.Picture() // for a cell
//
// A segmentation network gives the logit of the foreground, or of each class, at each pixel; a
// classifier gives the logit of each class. An image that does not fit into memory is cut into
// windows, which overlap so far that every pixel sees the same surroundings as in the whole image:
// the result does not depend on the windows. (Tiles without overlap, as in training, see zeros
// beyond their borders, where the network errs more.)
package predict
