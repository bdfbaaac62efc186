// A ring allreduce in SimGrid's S4U, message by message: what benchmarks/simulator.py runs beside lib_dlhpc.
//
//     c++ -O2 ring.cpp -o ring -lsimgrid && ./ring BYTES ARRIVAL ...     one arrival in s for each rank
//
// Prints the CPU seconds of the simulation alone (the platform is made before), then when each rank is
// through. Links have one direction each; latency is on the link out, as in tests/data/simgrid.

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

#include <simgrid/s4u.hpp>

namespace sg4 = simgrid::s4u;

constexpr double ALPHA = 1e-6, BANDWIDTH = 12.5e9;  // s, B/s

int main(int argc, char** argv)
{
  sg4::Engine engine(&argc, argv);
  for (const char* flag : {"network/model:CM02", "network/TCP-gamma:0", "network/crosstraffic:0"})
    sg4::Engine::set_config(flag);
  const double bytes = std::atof(argv[1]);
  const int ranks = argc - 2;

  auto* zone = sg4::create_full_zone("all");
  std::vector<sg4::Host*> hosts;
  std::vector<sg4::Link*> out, in;
  for (int r = 0; r < ranks; r++) {
    const auto name = std::to_string(r);
    hosts.push_back(zone->create_host(name, 1e9));
    out.push_back(zone->create_link("out " + name, BANDWIDTH)->set_latency(ALPHA)->seal());
    in.push_back(zone->create_link("in " + name, BANDWIDTH)->set_latency(0)->seal());
  }
  for (int r = 0; r < ranks; r++) {
    const int right = (r + 1) % ranks;
    zone->add_route(hosts[r]->get_netpoint(), hosts[right]->get_netpoint(), nullptr, nullptr,
                    {sg4::LinkInRoute(out[r]), sg4::LinkInRoute(in[right])}, false);
  }
  zone->seal();

  std::vector<double> finish(ranks);
  for (int r = 0; r < ranks; r++) {
    auto* mine = sg4::Mailbox::by_name(std::to_string(r));
    auto* right = sg4::Mailbox::by_name(std::to_string((r + 1) % ranks));
    sg4::Actor::create(std::to_string(r), hosts[r], [=, &finish] {
      sg4::this_actor::sleep_until(std::atof(argv[2 + r]));
      static int something;
      for (int round = 0; round < 2 * (ranks - 1); round++) {
        auto sent = right->put_async(&something, bytes);
        mine->get<int>();
        sent->wait();
      }
      finish[r] = sg4::Engine::get_clock();
    });
  }
  const std::clock_t start = std::clock();
  engine.run();
  std::printf("%.9g\n", double(std::clock() - start) / CLOCKS_PER_SEC);
  for (const double time : finish)
    std::printf("%.17g\n", time);
}
