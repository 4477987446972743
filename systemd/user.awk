# SPDX-License-Identifier: Apache-2.0
# Makes a unit for "systemctl --user" of one for the system. What does not work without privileges goes, and so does what is about
# other users. Comments go, too: the system's unit has them.
function drop(keys,  list, n, i) { n = split(keys, list, " "); for (i = 1; i <= n; i++) dropped[list[i]] = 1 }
BEGIN {
	# Users, groups, and what only root may set.
	drop("User Group SocketGroup CapabilityBoundingSet OOMScoreAdjust IPAddressDeny RemoveIPC KeyringMode")
	# These need a mount namespace, and for that a user namespace, in which the daemon could not tell its clients' users apart.
	drop("ProtectSystem ReadWritePaths ProtectHome PrivateTmp PrivateDevices PrivateNetwork PrivateMounts PrivateIPC ProcSubset")
	drop("ProtectHostname ProtectClock ProtectKernelTunables ProtectKernelModules ProtectKernelLogs ProtectControlGroups")
	print "# SPDX-License-Identifier: Apache-2.0"
	print "# For a user's own daemon: systemctl --user."
}
/^#/ { next }
{ key = $0; sub(/=.*/, "", key) }
key in dropped { next }
/^After=nvidia-/ { next }
/^(Wants|After|Also)=/ { gsub(/ ?gpumemd-admin\.socket/, ""); sub(/= /, "=") }
{
	gsub(/\/run\/gpumemd/, "%t/gpumemd")
	sub(/^ExecReload=\+/, "ExecReload=")
	sub(/^DirectoryMode=.*/, "DirectoryMode=0700")
	sub(/^WantedBy=multi-user\.target/, "WantedBy=default.target")
	print
}
# The folder of the sockets. It stays when the service stops.
/^ExecStart=.*gpumem-keeper/ { print "RuntimeDirectory=gpumemd\nRuntimeDirectoryMode=0700\nRuntimeDirectoryPreserve=yes" }
