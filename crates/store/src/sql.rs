//! The table `sockets` as DataFusion sees it: our files as a table provider, and a view that shows bytes as text.
//!
//! DataFusion's own listing table would do, but for two things: it must not see parts whose place a merged one took,
//! and one torn file must cost a warning and not the query.

use core::net::{IpAddr, Ipv6Addr};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, StringArray, StringBuilder};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, UInt8Type};
use arrow::record_batch::RecordBatch;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::object_store::ObjectStoreUrl;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfigBuilder, ParquetSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::datasource::table_schema::TableSchema;
use datafusion::error::DataFusionError;
use datafusion::functions::core::expr_fn::nullif;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarUDF, TableProviderFilterPushDown, TableType, Volatility, create_udf, lit,
};
use datafusion::object_store::path::Path as StorePath;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::{SessionContext, col};
use weirgate_units::Prefix;

use crate::check::{self, BadFile, Warning};
use crate::hour::Hour;
use crate::layout;
use crate::schema::{COLUMNS, FILE_SCHEMA, Kind};

/// The name under which the files stand before the view makes them readable.
const RAW: &str = "sockets_files";

/// The files' columns as SQL has them: dictionaries are text.
static SQL_SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| {
    let plain = |field: &Arc<Field>| match field.data_type() {
        DataType::Dictionary(_, value) => Arc::new(Field::clone(field).with_data_type(value.as_ref().clone())),
        _ => Arc::clone(field),
    };
    Arc::new(Schema::new(FILE_SCHEMA.fields().iter().map(plain).collect::<Vec<_>>()))
});

/// The files of a store, each with what was found out about it.
#[derive(Debug)]
pub(crate) struct Files {
    schema: TableSchema,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    files: BTreeMap<PathBuf, File>,
    warnings: Vec<Warning>,
}

#[derive(Debug)]
struct File {
    hour: Hour,
    bytes: u64,
    /// Whether its footer was read and found good.
    checked: bool,
}

impl Files {
    /// The files in `dir` by their names; their footers are read when a query needs them.
    pub(crate) fn list(dir: &Path) -> io::Result<Arc<Self>> {
        let listing = layout::list(dir)?;
        let file = |p: &layout::Part| (p.path(dir), File { hour: p.hour, bytes: p.bytes, checked: false });
        let inner = Inner {
            files: listing.parts.values().map(file).collect(),
            warnings: listing.foreign.into_iter().map(|path| Warning { path, why: BadFile::Name }).collect(),
        };
        let hour = Arc::new(Field::new("hour", DataType::Utf8, false));
        let schema = TableSchema::builder(Arc::clone(&SQL_SCHEMA)).with_table_partition_cols(vec![hour]).build();
        let files = Arc::new(Self { schema, inner: Mutex::new(inner) });
        Ok(files)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lock().files.is_empty()
    }

    /// What was left out so far.
    pub(crate) fn take_warnings(&self) -> Vec<Warning> {
        core::mem::take(&mut self.lock().warnings)
    }

    /// Leaves out every file that `check` finds bad, and says how many those are.
    pub(crate) fn leave_out(&self, check: impl Fn(&Path) -> core::result::Result<(), BadFile>) -> usize {
        let mut inner = self.lock();
        let Inner { files, warnings } = &mut *inner;
        let before = files.len();
        files.retain(|path, _| match check(path) {
            Ok(()) => true,
            Err(why) => {
                warnings.push(Warning { path: path.clone(), why });
                false
            }
        });
        before - files.len()
    }

    /// Makes the table `sockets` known to `context`.
    pub(crate) async fn register(self: &Arc<Self>, context: &SessionContext) -> Result<()> {
        let files = FilesTable(Arc::clone(self));
        context.register_table(RAW, Arc::new(files))?;
        let (address, network) = (address_function(), network_function());
        let columns = COLUMNS.iter().map(|c| match (c.kind, c.name) {
            (Kind::Address, _) => address.call(vec![col(c.stored_as)]).alias(c.name),
            (Kind::Network, _) => network.call(vec![col("remote"), col(c.stored_as)]).alias(c.name),
            (_, "pacing_rate") => nullif(col(c.name), lit(u64::MAX)).alias(c.name),
            (_, "min_rtt_us") => nullif(col(c.name), lit(u32::MAX)).alias(c.name),
            _ => col(c.name),
        });
        let view = context.table(RAW).await?.select(columns.collect::<Vec<_>>())?.into_view();
        context.register_table("sockets", view)?;
        context.register_udf(address);
        context.register_udf(network);
        Ok(())
    }

    /// The good files among those whose hour passes `filters`.
    fn select(&self, state: &dyn Session, filters: &[Expr]) -> Result<Vec<PartitionedFile>> {
        let mut inner = self.lock();
        let Inner { files, warnings } = &mut *inner;
        let hours: Vec<String> = files.values().map(|f| f.hour.to_string()).collect();
        let wanted = wanted_hours(state, filters, &hours)?;
        let mut selected = Vec::new();
        let mut bad = Vec::new();
        for (((path, file), hour), wanted) in files.iter_mut().zip(hours).zip(wanted) {
            if !wanted {
                continue;
            }
            if !file.checked {
                if let Err(why) = check::footer(path) {
                    bad.push(path.clone());
                    warnings.push(Warning { path: path.clone(), why });
                    continue;
                }
                file.checked = true;
            }
            let at = StorePath::from_absolute_path(path).map_err(|e| DataFusionError::External(Box::new(e)))?;
            let mut found = PartitionedFile::new("", file.bytes).with_partition_values(vec![ScalarValue::from(hour)]);
            found.object_meta.location = at;
            selected.push(found);
        }
        files.retain(|path, _| !bad.contains(path));
        Ok(selected)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Which of `hours` the filters that speak of nothing but the hour let through.
fn wanted_hours(state: &dyn Session, filters: &[Expr], hours: &[String]) -> Result<Vec<bool>> {
    let schema = Arc::new(Schema::new(vec![Field::new("hour", DataType::Utf8, false)]));
    let names: ArrayRef = Arc::new(StringArray::from_iter_values(hours));
    let batch = RecordBatch::try_new(Arc::clone(&schema), vec![names])?;
    let schema = DFSchema::try_from(schema)?;
    let mut wanted = vec![true; hours.len()];
    for filter in filters {
        if filter.column_refs().iter().any(|c| c.name != "hour") {
            continue;
        }
        let filter = state.create_physical_expr(filter.clone(), &schema)?;
        let passed = filter.evaluate(&batch)?.into_array(hours.len())?;
        let passed: &BooleanArray = passed.as_boolean();
        for (n, wanted) in wanted.iter_mut().enumerate() {
            *wanted &= passed.is_valid(n) && passed.value(n);
        }
    }
    Ok(wanted)
}

#[derive(Debug)]
struct FilesTable(Arc<Files>);

#[async_trait]
impl TableProvider for FilesTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(self.0.schema.table_schema())
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let files = self.0.select(state, filters)?;
        let source = Arc::new(ParquetSource::new(self.0.schema.clone()));
        let scan = FileScanConfigBuilder::new(ObjectStoreUrl::local_filesystem(), source)
            .with_file_group(FileGroup::new(files))
            .with_projection_indices(projection.cloned())?
            .with_limit(limit)
            .build();
        Ok(DataSourceExec::from_data_source(scan))
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        // Whole files and row groups are left out by them; the rows that remain are filtered above.
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }
}

/// `address(bytes)`: sixteen bytes as text, IPv4 as IPv4.
fn address_function() -> ScalarUDF {
    let types = vec![DataType::FixedSizeBinary(16)];
    create_udf(
        "address",
        types,
        DataType::Utf8,
        Volatility::Immutable,
        Arc::new(|args| text_of(args, |ip, _| ip.to_string())),
    )
}

/// `network(bytes, length)`: the network of that length that holds the address, as text.
fn network_function() -> ScalarUDF {
    let types = vec![DataType::FixedSizeBinary(16), DataType::UInt8];
    let text = |ip: IpAddr, len: u8| Prefix::of(ip, len).to_string();
    create_udf("network", types, DataType::Utf8, Volatility::Immutable, Arc::new(move |args| text_of(args, text)))
}

/// Applies `text` to each address in the first argument and each length in the second, 0 where there is none.
fn text_of(args: &[ColumnarValue], text: impl Fn(IpAddr, u8) -> String) -> Result<ColumnarValue> {
    let arrays = ColumnarValue::values_to_arrays(args)?;
    let addresses = arrays[0].as_fixed_size_binary();
    let lengths = arrays.get(1).map(|a| a.as_primitive::<UInt8Type>());
    let mut out = StringBuilder::with_capacity(addresses.len(), addresses.len() * 16);
    for n in 0..addresses.len() {
        let bytes = <[u8; 16]>::try_from(addresses.value(n)).ok().filter(|_| addresses.is_valid(n));
        out.append_option(bytes.map(|b| {
            let address = IpAddr::V6(Ipv6Addr::from(b)).to_canonical();
            text(address, lengths.map_or(0, |l| l.value(n)))
        }));
    }
    Ok(ColumnarValue::Array(Arc::new(out.finish())))
}
