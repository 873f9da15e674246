import { createConfig } from "ponder";

const abi = [
  {
    type: "event",
    name: "FeesCollected",
    inputs: [
      { name: "_token", type: "address", indexed: true },
      { name: "_integrator", type: "address", indexed: true },
      { name: "_integratorFee", type: "uint256", indexed: false },
      { name: "_lifiFee", type: "uint256", indexed: false },
    ],
  },
] as const;

export default createConfig({
  ordering: "multichain",
  chains: { anvil: { id: Number(process.env.CHAIN_ID), rpc: process.env.NODE_URL, disableCache: true } },
  contracts: {
    FeeCollector: {
      chain: "anvil",
      abi,
      address: process.env.CONTRACT as `0x${string}`,
      startBlock: 0,
      endBlock: Number(process.env.END_BLOCK),
    },
  },
});
