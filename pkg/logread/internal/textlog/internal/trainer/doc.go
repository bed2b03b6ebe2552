// Package trainer reads the lines in which training programs and frameworks print their progress:
// epochs, steps and their values. Each format's file begins with examples of its lines.
//
// The programs are Keras, PyTorch's ImageNet example, torchvision's references and
// timm (meters.go), tqdm and Lightning (bars.go), Hugging Face's Trainer, nanoGPT,
// DeepSpeed and Megatron-LM (llm.go), torchtitan, nnU-Net, those of the U-Net study,
// and the logger of the SC21 tutorial.
package trainer
