// The scenario of `fabric-speed` in ns-3: a leaf-spine network whose flows are read from a file, and how many packet-hops a second of
// this machine's time it makes of them.
//
// usage: leaf_spine --spines=4 --leaves=16 --hosts=20 --edge=10 --core=40 --delay=500 --buffer=300000 --flows=FILE --from=US --until=US
//        --steps=N
// FILE has a line per flow, by time: when it begins (picoseconds), source, destination (hosts by number), bytes.
// Prints a line for each of N equal steps of simulated time between --from and --until: packet-hops, seconds of processor time.
//
// A packet-hop is one packet that left one device's queue, hosts' devices included; what was dropped is not counted. Nothing is traced,
// nothing is written while it runs: the queues' own counters are read between steps.

#include <cstdint>
#include <ctime>
#include <fstream>
#include <iostream>
#include <unistd.h>
#include <vector>

#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"

using namespace ns3;

namespace
{
constexpr uint16_t PORT = 5000;

struct Flow
{
    uint64_t at_ps;
    uint32_t source;
    uint32_t destination;
    uint64_t bytes;
};

NodeContainer hosts;
std::vector<Ipv4Address> addresses;
std::vector<Flow> flows;
std::vector<Ptr<PointToPointNetDevice>> devices;

// What left all queues so far.
uint64_t
PacketHops()
{
    uint64_t hops = 0;
    for (const auto& device : devices)
    {
        const auto queue = device->GetQueue();
        hops += queue->GetTotalReceivedPackets() - queue->GetNPackets();
    }
    return hops;
}

double
ProcessorSeconds()
{
    timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

// A flow begins, and the next one is waited for.
void
Begin(size_t number)
{
    const Flow& flow = flows[number];
    BulkSendHelper sender("ns3::TcpSocketFactory", InetSocketAddress(addresses[flow.destination], PORT));
    sender.SetAttribute("MaxBytes", UintegerValue(flow.bytes));
    sender.SetAttribute("SendSize", UintegerValue(64 * 1024));
    sender.Install(hosts.Get(flow.source));
    if (number + 1 < flows.size())
    {
        const uint64_t wait_ps = flows[number + 1].at_ps - flow.at_ps;
        Simulator::Schedule(PicoSeconds(wait_ps), &Begin, number + 1);
    }
}

// Two devices and the link between them; the switch's queues hold `buffer` bytes, a host's own all that comes.
NetDeviceContainer
Link(Ptr<Node> a, Ptr<Node> b, bool is_host, uint64_t gbit, uint64_t delay_ns, uint32_t buffer)
{
    PointToPointHelper link;
    link.SetDeviceAttribute("DataRate", DataRateValue(DataRate(gbit * 1000000000)));
    link.SetChannelAttribute("Delay", TimeValue(NanoSeconds(delay_ns)));
    const auto size = QueueSize(QueueSizeUnit::BYTES, buffer);
    link.SetQueue("ns3::DropTailQueue", "MaxSize", QueueSizeValue(size));
    NetDeviceContainer both = link.Install(a, b);
    for (uint32_t end = 0; end < 2; end++)
    {
        auto device = DynamicCast<PointToPointNetDevice>(both.Get(end));
        devices.push_back(device);
        if (is_host && end == 0)
        {
            device->GetQueue()->SetMaxSize(QueueSize(QueueSizeUnit::BYTES, UINT32_MAX));
        }
    }
    return both;
}
} // namespace

int
main(int argc, char* argv[])
{
    uint32_t spines = 4, leaves = 16, per_leaf = 20, buffer = 300000, steps = 5;
    uint64_t edge = 10, core = 40, delay = 500, from_us = 100, until_us = 200;
    std::string file;
    CommandLine line(__FILE__);
    line.AddValue("spines", "", spines);
    line.AddValue("leaves", "", leaves);
    line.AddValue("hosts", "hosts of each leaf", per_leaf);
    line.AddValue("edge", "Gbit/s", edge);
    line.AddValue("core", "Gbit/s", core);
    line.AddValue("delay", "of each link, ns", delay);
    line.AddValue("buffer", "of each switch port, bytes", buffer);
    line.AddValue("flows", "file", file);
    line.AddValue("from", "us", from_us);
    line.AddValue("until", "us", until_us);
    line.AddValue("steps", "", steps);
    line.Parse(argc, argv);

    std::ifstream list(file);
    for (Flow flow; list >> flow.at_ps >> flow.source >> flow.destination >> flow.bytes;)
    {
        flows.push_back(flow);
    }
    NS_ABORT_MSG_IF(flows.empty(), "no flows in " << file);

    Time::SetResolution(Time::PS);
    Config::SetDefault("ns3::TcpL4Protocol::SocketType", TypeIdValue(TcpNewReno::GetTypeId()));
    Config::SetDefault("ns3::TcpL4Protocol::RecoveryType", TypeIdValue(TcpClassicRecovery::GetTypeId()));
    Config::SetDefault("ns3::TcpSocketBase::Sack", BooleanValue(true));
    Config::SetDefault("ns3::TcpSocketBase::Timestamp", BooleanValue(false));
    Config::SetDefault("ns3::TcpSocketBase::MinRto", TimeValue(MilliSeconds(200)));
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(1460));
    Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(10));
    Config::SetDefault("ns3::TcpSocket::DelAckCount", UintegerValue(2));
    Config::SetDefault("ns3::TcpSocket::DelAckTimeout", TimeValue(MilliSeconds(40)));
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(2800 * 1460));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(2800 * 1460));
    Config::SetDefault("ns3::Ipv4GlobalRouting::RandomEcmpRouting", BooleanValue(true));

    NodeContainer leaf_nodes, spine_nodes;
    hosts.Create(leaves * per_leaf);
    leaf_nodes.Create(leaves);
    spine_nodes.Create(spines);
    InternetStackHelper stack;
    stack.SetIpv6StackInstall(false);
    stack.InstallAll();

    Ipv4AddressHelper address("10.0.0.0", "255.255.255.252");
    TrafficControlHelper control;
    const auto number = [&](const NetDeviceContainer& both) {
        const Ipv4InterfaceContainer interfaces = address.Assign(both);
        address.NewNetwork();
        // Addresses bring a queue discipline (FqCoDel) with them: the device's own queue is the only one here.
        control.Uninstall(both);
        return interfaces.GetAddress(0);
    };
    for (uint32_t host = 0; host < leaves * per_leaf; host++)
    {
        const auto leaf = leaf_nodes.Get(host / per_leaf);
        addresses.push_back(number(Link(hosts.Get(host), leaf, true, edge, delay, buffer)));
    }
    for (uint32_t leaf = 0; leaf < leaves; leaf++)
    {
        for (uint32_t spine = 0; spine < spines; spine++)
        {
            number(Link(leaf_nodes.Get(leaf), spine_nodes.Get(spine), false, core, delay, buffer));
        }
    }
    Ipv4GlobalRoutingHelper::PopulateRoutingTables();
    PacketSinkHelper("ns3::TcpSocketFactory", InetSocketAddress(Ipv4Address::GetAny(), PORT)).Install(hosts);
    Simulator::Schedule(PicoSeconds(flows[0].at_ps), &Begin, 0);

    uint64_t hops = 0;
    double seconds = 0;
    for (uint32_t step = 0; step <= steps; step++)
    {
        const Time until = NanoSeconds(1000 * from_us + 1000 * (until_us - from_us) * step / steps);
        Simulator::Stop(until - Simulator::Now());
        Simulator::Run();
        const uint64_t hops_now = PacketHops();
        const double now = ProcessorSeconds();
        if (step > 0)
        {
            std::cout << hops_now - hops << " " << now - seconds << std::endl;
        }
        hops = hops_now;
        seconds = now;
    }
    // What is left is not taken down one by one: the process ends.
    std::cout.flush();
    _exit(0);
}
