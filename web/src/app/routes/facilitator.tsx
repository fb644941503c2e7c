import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { ErrorNotice } from "../../components/ErrorNotice.tsx";
import { Columns, Stack } from "../../components/Layout.tsx";
import { PageHeader } from "../../components/PageHeader.tsx";
import { Loading, Skeleton } from "../../components/Skeleton.tsx";
import { facilitatorStatsQuery } from "../../features/facilitator/api.ts";
import {
  BatchChart,
  FacilitatorNumbers,
  VolumeChart,
} from "../../features/facilitator/FacilitatorNumbers.tsx";
import { PointYourApi } from "../../features/facilitator/PointYourApi.tsx";
import { Recent } from "../../features/facilitator/Recent.tsx";
import { Relayers } from "../../features/facilitator/Relayers.tsx";
import { Supported } from "../../features/facilitator/Supported.tsx";
import { useInfo } from "../../shared/info.ts";

export default function FacilitatorScreen(): ReactNode {
  const info = useInfo();
  const network = info?.networks[0];
  const { data: stats, error, refetch } = useQuery(facilitatorStatsQuery);
  return (
    <>
      <PageHeader
        title="Facilitator"
        lead="Verifies and settles x402 payments for any API, and pays the gas."
      />
      <Stack gap={5}>
        {error && (
          <ErrorNotice
            title={stats ? "These numbers may be out of date" : "The numbers could not be loaded"}
            error={error}
            onRetry={() => void refetch()}
          />
        )}
        {(stats || !error) && <FacilitatorNumbers stats={stats} />}
        {!stats && !error && (
          <Loading label="charts">
            <Skeleton shape="chart" count={2} />
          </Loading>
        )}
        {stats && (
          <Columns>
            <VolumeChart stats={stats} />
            <BatchChart stats={stats} />
          </Columns>
        )}
        {info && network && <PointYourApi info={info} network={network} />}
        {stats && <Recent stats={stats} />}
        {stats && <Relayers stats={stats} />}
        {info && <Supported info={info} />}
      </Stack>
    </>
  );
}
