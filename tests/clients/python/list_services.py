"""Lists the services of a server by reflection: list_services.py HOST:PORT"""

import sys

import grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

with grpc.insecure_channel(sys.argv[1]) as channel:
    for service in sorted(ProtoReflectionDescriptorDatabase(channel).get_services()):
        print(service)
