#!/usr/bin/env bash
# The image's entry point. Spark on Kubernetes calls it with `driver` or `executor`; anything else is a command.
set -euo pipefail

case "${1:-}" in
driver)
    shift
    exec tini -s -- "$SPARK_HOME/bin/spark-submit" --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" --deploy-mode client "$@"
    ;;
executor)
    options=()
    while IFS='=' read -r _ option; do options+=("$option"); done < <(env | grep '^SPARK_JAVA_OPT_' | sort -t_ -k4 -n)
    # In the order of Spark's own image. SPARK_CLASSPATH is spark.executor.extraClassPath.
    classes="${SPARK_CONF_DIR:-$SPARK_HOME/conf}${HADOOP_CONF_DIR:+:$HADOOP_CONF_DIR}${SPARK_CLASSPATH:+:$SPARK_CLASSPATH}"
    classes+=":$SPARK_HOME/jars/*${SPARK_EXTRA_CLASSPATH:+:$SPARK_EXTRA_CLASSPATH}${SPARK_DIST_CLASSPATH:+:$SPARK_DIST_CLASSPATH}"
    exec tini -s -- "$JAVA_HOME/bin/java" "${options[@]}" "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
        -cp "$classes" org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
        --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES" \
        --app-id "$SPARK_APPLICATION_ID" --hostname "$SPARK_EXECUTOR_POD_IP" \
        --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" --podName "$SPARK_EXECUTOR_POD_NAME"
    ;;
*)
    exec tini -s -- "$@"
    ;;
esac
