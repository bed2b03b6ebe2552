package kernels

import (
	"fmt"
	"strings"
)

// kernelSignature is the name of a kernel and its parameters, each written as "p:name" for a
// pointer, "l:name" for a long long, "i:name" for an int or "f:name" for a float.
type kernelSignature struct{ name, params string }

// typedKernels lists the kernels that exist for each ElementType, with names such as
// relu_f32, relu_f16 and relu_bf16.
var typedKernels = [...]kernelSignature{
	{"bn_stats", "p:x i:x_pitch p:partial l:rows l:rows_per_chunk i:channels"},
	{"bn_apply", "p:x i:x_pitch p:add i:add_pitch p:mean p:invstd p:gamma p:beta p:y i:y_pitch l:rows l:rows_per_chunk i:channels i:relu"},
	{"bn_infer", "p:x i:x_pitch p:add i:add_pitch p:running_mean p:running_var p:gamma p:beta p:y i:y_pitch l:rows l:rows_per_chunk i:channels i:relu f:epsilon"},
	{"bn_backward_reduce", "p:x i:x_pitch p:dy i:dy_pitch p:y i:y_pitch p:mean p:invstd p:gamma p:beta p:partial l:rows l:rows_per_chunk i:channels i:mask"},
	{"bn_backward_apply", "p:x i:x_pitch p:dy i:dy_pitch p:y i:y_pitch p:mean p:invstd p:gamma p:beta p:dgamma p:dbeta p:acc i:acc_pitch p:dx i:dx_pitch p:dadd i:dadd_pitch l:rows l:rows_per_chunk i:channels i:mask"},
	{"bias_act", "p:x i:x_pitch p:bias p:add i:add_pitch p:y i:y_pitch l:rows l:rows_per_chunk i:channels i:relu"},
	{"bias_backward", "p:dy i:dy_pitch p:y i:y_pitch p:dx i:dx_pitch p:partial l:rows l:rows_per_chunk i:channels"},
	{"relu", "p:x i:x_pitch p:y i:y_pitch l:rows l:rows_per_chunk i:channels"},
	{"relu_backward", "p:y i:y_pitch p:dy i:dy_pitch p:acc i:acc_pitch p:dx i:dx_pitch l:rows l:rows_per_chunk i:channels"},
	{"add", "p:a i:a_pitch p:b i:b_pitch p:y i:y_pitch l:rows l:rows_per_chunk i:channels"},
	{"copy_channels", "p:src i:src_pitch p:dst i:dst_pitch l:rows i:channels"},
	{"max_pool", "p:x i:x_pitch p:y i:y_pitch p:index i:channels " + poolParams + " i:pad_zeros"},
	{"max_pool_backward", "p:dy i:dy_pitch p:index p:acc i:acc_pitch p:dx i:dx_pitch i:channels " + poolParams},
	{"pad", "p:x i:x_pitch p:acc i:acc_pitch p:y i:y_pitch i:channels i:batch i:in_d i:in_h i:in_w i:out_d i:out_h i:out_w i:shift_d i:shift_h i:shift_w"},
	{"global_avg_pool", "p:x i:x_pitch p:y i:y_pitch l:points i:channels"},
	{"global_avg_pool_backward", "p:dy i:dy_pitch p:acc i:acc_pitch p:dx i:dx_pitch l:points l:rows l:rows_per_chunk i:channels"},
	{"avg_pool", "p:x i:x_pitch p:y i:y_pitch i:channels " + poolParams},
	{"avg_pool_backward", "p:dy i:dy_pitch p:acc i:acc_pitch p:dx i:dx_pitch i:channels " + poolParams},
	{"leaky_relu", "p:x i:x_pitch p:gate i:gate_pitch p:acc i:acc_pitch p:y i:y_pitch l:rows l:rows_per_chunk i:channels f:slope"},
	{"tanh", "p:x i:x_pitch p:y i:y_pitch l:rows l:rows_per_chunk i:channels"},
	{"tanh_backward", "p:y i:y_pitch p:dy i:dy_pitch p:acc i:acc_pitch p:dx i:dx_pitch l:rows l:rows_per_chunk i:channels"},
	{"softmax_ce", "p:z i:z_pitch p:t p:partial l:rows i:classes f:smoothing"},
	{"softmax_ce_backward", "p:z i:z_pitch p:t p:dloss p:control p:dz i:dz_pitch l:rows i:classes f:smoothing"},
	{"l1", "p:y i:y_pitch p:t p:partial l:rows i:channels f:weight"},
	{"l1_backward", "p:y i:y_pitch p:t p:dloss p:control p:dy i:dy_pitch l:rows i:channels f:weight"},
	{"dice_bce", "p:z i:z_pitch p:t p:partial l:points i:channels"},
	{"dice_bce_backward", "p:z i:z_pitch p:t p:maps p:dloss p:control p:dz i:dz_pitch l:rows l:points i:channels f:weight"},
	{"bce", "p:z i:z_pitch p:t p:partial l:rows i:channels"},
	{"bce_backward", "p:z i:z_pitch p:t p:dloss p:control p:dz i:dz_pitch l:rows i:channels"},
	{"head_forward", "p:x i:x_pitch p:w p:bias p:z l:rows i:channels i:lanes"},
	{"head_backward_data", "p:dz p:w p:acc i:acc_pitch p:dx i:dx_pitch l:rows l:rows_per_chunk i:channels"},
	{"head_backward_weights", "p:x i:x_pitch p:dz p:partial i:partial_pitch l:rows l:rows_per_chunk i:channels"},
	{"adam", "p:w p:g p:m p:v p:low l:n p:control f:beta1 f:beta2 f:epsilon f:weight_decay i:decoupled i:unscaled"},
	{"sgd", "p:w p:g p:buffer p:low l:n p:control f:momentum f:weight_decay i:nesterov i:unscaled"},
	{"lars", "p:w p:g p:buffer p:low p:chunks i:first p:rates p:control f:momentum"},
	{"lamb", "p:w p:m p:v p:low p:chunks i:first p:rates p:control f:epsilon"},
	{"cast_from_f32", "p:src p:dst l:n"},
	{"cast_to_f32", "p:src p:dst l:n"},
	{"nchw_to_nhwc", "p:src p:dst i:dst_pitch i:channels i:padded l:spatial"},
	{"nchw_to_rows", "p:src p:dst i:dst_pitch i:channels l:spatial"},
	{"nhwc_to_nchw", "p:src i:src_pitch p:dst i:channels l:spatial"},
	{"normalize_u8", "p:src p:dst i:dst_pitch p:mean p:invstd i:channels i:padded l:spatial f:divisor"},
	{"augment_2d", "p:src p:samples p:stored p:control p:dst i:dst_pitch p:mean p:invstd i:channels i:padded i:height i:width i:out_height i:out_width i:flags f:divisor l:brightness l:contrast"},
	{"augment_3d", "p:src p:samples p:stored p:control p:dst i:dst_pitch p:mean p:invstd i:channels i:padded i:depth i:height i:width i:out_depth i:out_height i:out_width i:flags f:divisor l:brightness l:contrast"},
}

// poolParams lists the parameters for the geometry of a pooling kernel, with the dimensions in
// the order depth, height, width.
const poolParams = "i:batch i:in_d i:in_h i:in_w i:out_d i:out_h i:out_w i:kernel_d i:kernel_h i:kernel_w i:stride_d i:stride_h i:stride_w i:pad_d i:pad_h i:pad_w"

// untypedKernels lists the kernels that exist only once, for all element types.
var untypedKernels = [...]kernelSignature{
	{"bn_finalize", "p:partial i:chunks l:rows l:rows_per_chunk i:channels f:epsilon f:momentum p:mean p:invstd p:running_mean p:running_var"},
	{"bn_sums", "p:sum p:square l:rows i:channels f:epsilon f:momentum p:mean p:invstd p:running_mean p:running_var"},
	{"bn_moments", "p:partial i:chunks l:rows l:rows_per_chunk i:channels p:vector"},
	{"bn_join", "p:vector i:channels f:epsilon f:momentum p:mean p:invstd p:running_mean p:running_var"},
	{"statistics_pack", "p:a p:b l:rows i:channels p:vector"},
	{"statistics_unpack", "p:vector l:rows i:channels p:a p:b"},
	{"sum_chunks", "p:partial i:partial_pitch i:chunks p:out0 i:n0 p:out1 i:n1"},
	{"bce_finalize", "p:partial i:blocks l:elements p:loss p:counts i:accumulate"},
	{"dice_maps", "p:partial i:chunks l:points f:weight p:maps"},
	{"step_begin", "p:control f:beta1 f:beta2"},
	{"grad_check", "p:g l:n p:control"},
	{"grad_unscale", "p:g l:n p:control"},
	{"scale_update", "p:control f:growth f:backoff i:interval"},
	{"layer_squares", "p:w p:g p:chunks i:first p:squares"},
	{"clip_norm", "p:squares i:chunks f:most p:control"},
	{"lars_rates", "p:squares p:layers i:first p:rates p:control f:trust f:weight_decay"},
	{"lamb_moments", "p:w p:g p:m p:v p:chunks i:first p:layers p:squares p:control f:beta1 f:beta2 f:epsilon f:weight_decay"},
	{"lamb_rates", "p:squares p:layers i:first p:rates p:control f:weight_decay"},
	{"grad_add", "p:sum p:g l:n"},
	{"grad_mean", "p:g p:sum l:n i:parts"},
	{"take_rows", "p:src p:rows p:dst l:n i:width"},
	{"fill_u32", "p:dst i:value l:n"},
	{"fma_ceiling", "p:out i:iterations"},
	{"mma_ceiling_f16", "p:out i:iterations"},
	{"mma_ceiling_bf16", "p:out i:iterations"},
}

func (s kernelSignature) newKernel(suffix string) Kernel {
	k := Kernel{Name: s.name + suffix}
	for field := range strings.FieldsSeq(s.params) {
		kind := ParamKind(strings.IndexByte("plif", field[0])) // in the order of the constants
		k.Params = append(k.Params, Param{field[2:], kind})
	}
	return k
}

// ListKernels returns the kernels of Source(types...), in the same order. Without types it
// returns the kernels for all types.
func ListKernels(types ...ElementType) []Kernel {
	if len(types) == 0 {
		types = []ElementType{F32, F16, BF16}
	}
	var all []Kernel
	for _, s := range untypedKernels {
		all = append(all, s.newKernel(""))
	}
	for _, t := range types {
		for _, s := range typedKernels {
			all = append(all, s.newKernel("_"+t.String()))
		}
	}
	return all
}

func lookUpUntyped(name string) (Kernel, error) {
	for _, s := range untypedKernels {
		if s.name == name {
			return s.newKernel(""), nil
		}
	}
	return Kernel{}, fmt.Errorf("launch %s: unknown kernel", name)
}

func lookUpTyped(t ElementType, name string) (Kernel, error) {
	if t > BF16 {
		return Kernel{}, fmt.Errorf("launch %s: unknown element type %d", name, t)
	}
	for _, s := range typedKernels {
		if s.name == name {
			return s.newKernel("_" + t.String()), nil
		}
	}
	return Kernel{}, fmt.Errorf("launch %s: unknown kernel", name)
}
