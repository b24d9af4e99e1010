# NOT RUN in this project. Vivado batch script: exported IP folder -> kernel object with user-managed control registers.
lassign $argv ip_folder kernel_file
package_xo -force -xo_path $kernel_file -kernel_name npu_top -ip_directory $ip_folder -ctrl_protocol user_managed
exit
